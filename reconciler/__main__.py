"""`python -m reconciler` is `ome-manager`."""

from reconciler.cli import main

if __name__ == "__main__":
    main()
