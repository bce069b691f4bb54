"""`regard` and `python -m regard`."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from .cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("regard"):
            raise
        print(
            f"regard: the command line needs {error.name}, which is not installed. "
            "Install it with:\n    pip install 'regard[look]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
