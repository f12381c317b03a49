"""The process of one command. Ctrl-C ends it without a word, also while its modules are still being read."""

import sys
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    try:
        from twinbus.cli.app import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
