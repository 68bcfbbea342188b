"""Upload an exported network and its card to the Hugging Face Hub."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Failure, InputError, reason
from .timm_folder import CARD_FILE, CONFIG_FILE, WEIGHTS_FILE

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def push(source: Path, repo: str, private: bool = False, api: HfApi | None = None) -> str:
    """Upload what `coterie export` wrote, with its card as README.md, and return the address.

    Args:
        source: an exported file with its card beside it, or a folder in timm's format.
        repo: the repository, NAME or OWNER/NAME; it is made if it does not exist.
        private: make it visible to its owner alone.
        api: the connection; by default to the Hub, with the token of `hf auth login` or HF_TOKEN.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    files = _exported_files(source)
    api = api or HfApi()
    with tempfile.TemporaryDirectory() as folder:
        for file, name in files.items():
            shutil.copyfile(file, Path(folder) / name)
        try:
            address = api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=address.repo_id, folder_path=folder, commit_message=f"Upload {source.name} by coterie"
            )
        except HFValidationError as error:
            raise InputError(f"'{repo}' is no name of a repository: {reason(error)}") from None
        except Exception as error:  # no token, no connection, no permission: the Hub's errors are of many classes
            raise Failure(
                f"{source} could not be uploaded to {repo} ({reason(error)}): `hf auth login` stores a token."
            ) from None
    return str(address)


def _exported_files(source: Path) -> dict[Path, str]:
    """Return the files to upload with their names in the repository."""
    if source.is_dir():
        files = {source / name: name for name in (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE)}
        what = "a folder that `coterie export --format timm` wrote"
    else:
        files = {source: source.name, source.with_name(source.name + ".md"): CARD_FILE}
        what = "a file that `coterie export` wrote, with its card beside it"
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise InputError(f"{source} is not {what}: there is no {missing}.")
    return files
