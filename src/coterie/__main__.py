"""`python -m coterie`, as torchrun starts it."""

from .cli.main import main

if __name__ == "__main__":
    main()
