"""The rules of `ictp2p/sync/optimizers/joint.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "joint-state-left-behind",
        "A newcomer takes over the state of each of several inner optimizers.",
        "            part.load_state_dict(state)\n",
        "            pass\n",
        ("sync/optimizers/test_joint.py::test_a_newcomer_has_the_state_of_each_part",),
    ),
    Mutation(
        "joint-groups-of-before",
        "A joint optimizer has the groups and the state that its parts have by now, not those that they began with.",
        "        return [group for part in self.parts for group in part.param_groups]\n",
        "        begun = [group for part in self.parts for group in part.param_groups]\n"
        "        return self.__dict__.setdefault('begun', begun)\n",
        ("sync/optimizers/test_joint.py::test_a_part_that_is_restored_by_itself_is_the_joint_ones",),
    ),
)
