"""Who should vote: whatever is believed, the choice settles, spreads over the clusters, and leaves out the leavers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.sync.rounds.voters import desired_voters
from ictp2p.types import ClusterId, PeerId

GRACE, LIMIT = 3.0, 7
WORKERS = [PeerId(f"{cluster}{number}") for cluster in "ABCDEF" for number in range(4)]
FORMER = PeerId("Z9")  # of a cluster that nobody ever mentioned


@st.composite
def beliefs(draw: st.DrawFn) -> tuple[Sight, tuple[PeerId, ...], frozenset[PeerId]]:
    """What a peer sees, who votes, and who wants to leave."""
    clusters: dict[ClusterId, ClusterView] = {}
    for name in draw(st.sets(st.sampled_from("ABCDEF"), min_size=1)):
        workers = tuple(PeerId(f"{name}{number}") for number in range(draw(st.integers(1, 4))))
        candidates = tuple(worker for worker in workers if draw(st.booleans()))
        standing = draw(st.sampled_from([(True, False), (True, True), (False, False)]))
        leader = draw(st.sampled_from(workers))
        clusters[ClusterId(name)] = ClusterView(leader, 1, *standing, True, candidates, workers)
    sight = Sight(PeerId("A0"), GRACE, 0.0)
    sight.update({name: view for name, view in clusters.items() if draw(st.booleans())}, 0.0)
    sight.update(clusters, 1.0)
    sight.suspect(draw(st.frozensets(st.sampled_from(WORKERS), max_size=4)), 1.0)
    voters = tuple(draw(st.lists(st.sampled_from([*WORKERS, FORMER]), min_size=1, max_size=LIMIT, unique=True)))
    sight.mind(voters, 1.0)
    return sight, voters, draw(st.frozensets(st.sampled_from(WORKERS), max_size=4))


@given(beliefs(), st.integers(1, LIMIT), st.sampled_from([1.0, 1.0 + GRACE, 60.0]))
def test_the_choice_settles_and_is_never_of_nobody(
    believed: tuple[Sight, tuple[PeerId, ...], frozenset[PeerId]], limit: int, now: float
) -> None:
    """Each change costs a decision: a choice that went in circles would have the mesh decide without end."""
    sight, voters, leaving = believed
    chosen = desired_voters(voters, sight, leaving, limit, now)
    for _ in range(3):
        chosen = desired_voters(chosen, sight, leaving, limit, now)
    assert desired_voters(chosen, sight, leaving, limit, now) == chosen != ()
    assert len(chosen) <= max(limit, len(voters))
    if set(chosen) != set(voters):
        assert len(chosen) <= limit
        assert not leaving.intersection(chosen)
        assert not [voter for voter in chosen if sight.gone(voter, now)]
        assert not [voter for voter in chosen if voter not in voters and sight.doubted(voter, now)]


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, LIMIT))
def test_every_cluster_has_one_voter_before_any_has_two(clusters: int, workers: int, limit: int) -> None:
    names = "ABCDEF"[:clusters]
    sight = Sight(PeerId("A0"), GRACE, 0.0)
    members = {name: tuple(PeerId(f"{name}{number}") for number in range(workers)) for name in names}
    views = {ClusterId(n): ClusterView(m[0], 1, True, False, True, m, m) for n, m in members.items()}
    sight.update(views, 0.0)
    chosen = desired_voters((PeerId("A0"),), sight, (), limit, 0.0)
    for _ in range(2):
        chosen = desired_voters(chosen, sight, (), limit, 0.0)
    shares = Counter(dict.fromkeys(names, 0)) + Counter(voter[0] for voter in chosen)
    counts = [shares[name] for name in names]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == min(limit, clusters * workers)


@given(beliefs(), st.integers(1, LIMIT))
def test_a_newcomer_is_never_the_first_if_anybody_stays(
    believed: tuple[Sight, tuple[PeerId, ...], frozenset[PeerId]], limit: int
) -> None:
    """Regression: from one voter to two, whose leader came first, and the one that there was could decide no more."""
    sight, voters, leaving = believed
    chosen = desired_voters(voters, sight, leaving, limit, 1.0)
    assert chosen[0] in voters or not set(chosen) & set(voters)


@given(beliefs(), st.integers(1, LIMIT))
def test_who_leads_comes_to_the_front_once_it_votes(
    believed: tuple[Sight, tuple[PeerId, ...], frozenset[PeerId]], limit: int
) -> None:
    """Regression: a founder that was led by another went on planning, and heard nothing of what links measure."""
    sight, chosen, leaving = believed
    for _ in range(4):
        chosen = desired_voters(chosen, sight, leaving, limit, 1.0)
    leading = [voter for voter in chosen if voter in sight.leaders()]
    assert chosen[0] in leading or all(sight.doubted(voter, 1.0) for voter in leading)


def test_who_stands_in_two_clusters_or_twice_in_one_is_a_voter_once() -> None:
    """Regression: what was proposed could not be decided, once a second, and no voter changed any more."""
    leader, twice = PeerId("A0"), PeerId("B1")
    views = {
        ClusterId(name): ClusterView(first, 1, alive=True, suspect=False, training=True, candidates=candidates)
        for name, first, candidates in [
            ("A", leader, (leader,)),
            ("B", PeerId("B0"), (PeerId("B0"), twice, twice)),
            ("C", twice, (twice,)),
        ]
    }
    sight = Sight(leader, GRACE, 0.0)
    sight.update(views, 0.0)
    assert Counter(desired_voters((leader,), sight, (), LIMIT, 1.0)) == Counter((leader, "B0", twice))
