"""What every adapter of a port, and every plug-in, keeps: suites for pytest, to inherit in a test file of yours.

`docs/adapters.md` shows how. There is a module for each port and each kind of plug-in; it says what it wants from you.
"""

from ...app.extras import require
from ...ports.errors import ConfigError

try:
    require("the contract suites", ("pytest", "hypothesis"), "contracts")
except ConfigError as error:
    raise ImportError(str(error), name=__name__) from None
