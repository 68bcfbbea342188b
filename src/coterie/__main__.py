"""`python -m coterie`, as torchrun starts it."""

from .cli.main import main

main()
