"""`python -m blackout` is the command line; so is `torchrun ... -m blackout`."""

from blackout.cli import main

if __name__ == "__main__":
    main()
