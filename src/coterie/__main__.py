"""`python -m coterie`, as torchrun starts it."""

from .cli import main

main()
