"""Messages about progress are left out of the pages; warnings stay."""

import logging

# With a handler at the root, PyMC does not set up its own, whose level would be INFO.
logging.basicConfig(level=logging.WARNING)
