"""Everything a user may set, in one frozen value, checked before anything runs.

`load` takes values from four sources, the later winning: a preset, a TOML file, `ICTP2P_*` in the environment, and
overrides. `Config.local` and its like take a preset and arguments alone, so that what a program says is what it gets.
A key that does not exist, or a value that cannot be, is an error in every source, also where a later one wins, and is
named with its source: a timeout that is set with a typing mistake must not quietly stay as it was. But an empty token
in the environment, which is what scripts leave of one that they do not use, is none where an argument gives another.

There are two sets of timeouts and two profiles, because there are two networks. Inside a cluster a second of
silence is a fault; between clusters it is a full up-link. The numbers of each protocol live with its machine, as
its profile; `local_profile` and `global_profile` choose among them by name.

Each field carries its unit, meaning and check (`values`), and the table of parameters in the documentation is
generated from them: what is written there is what runs.
"""

from ictp2p.config.checks import PROFILES
from ictp2p.config.load import load
from ictp2p.config.table import HOW_TO_LOAD, Parameter, page, parameters
from ictp2p.config.values import Config, Timeouts

__all__ = ["HOW_TO_LOAD", "PROFILES", "Config", "Parameter", "Timeouts", "load", "page", "parameters"]
