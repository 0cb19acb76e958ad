import os
import subprocess
import sys
from pathlib import Path

import pytest

import ictp2p
from ictp2p.demo import corpus
from ictp2p.errors import ConfigError


def test_the_deal_is_complete_and_disjoint() -> None:
    texts = sorted(text for _, text in corpus.documents())
    dealt = corpus.load(4)
    pieces = (*dealt.shards, dealt.validation)
    newlines = len(texts) - len(pieces)
    assert sum(map(len, pieces)) == sum(map(len, texts)) + newlines
    for text in texts:
        if len(text) > 2000:
            assert sum(text in piece for piece in pieces) == 1


def test_shards_are_big_and_alike() -> None:
    sizes = [len(shard) for shard in corpus.load(4).shards]
    assert min(sizes) > 500_000
    assert max(sizes) < 2 * min(sizes)


def test_every_process_deals_alike() -> None:
    program = "from ictp2p.demo import corpus; from hashlib import sha256; c = corpus.load(4);"
    program += "print([sha256(t).hexdigest() for t in (*c.shards, c.validation)])"
    told = {_run(program, seed) for seed in ("1", "2")}
    assert len(told) == 1


def test_loading_text_does_not_load_torch() -> None:
    assert _run("import sys; from ictp2p.demo import corpus; print('torch' in sys.modules)", "0") == "False\n"


def test_a_stripped_installation_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(corpus, "_library", lambda: tmp_path)
    with pytest.raises(ConfigError, match=f"{tmp_path} holds no more source"):
        corpus.load(16)


def _run(program: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(ictp2p.__file__).parents[1]), "PYTHONHASHSEED": seed}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, timeout=50
    )
    return ran.stdout
