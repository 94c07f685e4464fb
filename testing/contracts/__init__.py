"""Contract suites for every adapter of a port and every plug-in: pytest classes to inherit in a test file of yours.

`docs/adapters.md` shows how. Each port and each kind of plug-in has a module, which says what it wants from you.
"""

from ...app.extras import require
from ...ports.errors import ConfigError

try:
    require("the contract suites", ("pytest", "hypothesis"), "contracts")
except ConfigError as error:
    raise ImportError(str(error), name=__name__) from None
