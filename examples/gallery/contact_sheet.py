"""A sheet of small pictures with a caption each, for the scripts of the gallery."""

from PIL import Image, ImageDraw, ImageFont

CELL, GAP, LINE = 112, 8, 20
"""Pixels of a picture's side, between two pictures, and of a caption."""


def contact_sheet(pictures: list[tuple[Image.Image, str, str]], columns: int) -> Image.Image:
    """Draw pictures row by row, each with its caption below in a colour."""
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (GAP + columns * (CELL + GAP), GAP + rows * (CELL + LINE + GAP)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for number, (picture, caption, colour) in enumerate(pictures):
        x, y = GAP + number % columns * (CELL + GAP), GAP + number // columns * (CELL + LINE + GAP)
        sheet.paste(picture.convert("RGB").resize((CELL, CELL), Image.Resampling.NEAREST), (x, y))
        pen.text((x, y + CELL + 2), caption, colour, font)
    return sheet
