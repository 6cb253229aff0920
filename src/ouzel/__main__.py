"""`python -m ouzel` is the command line."""

from ouzel.cli import main

if __name__ == "__main__":
    main()
