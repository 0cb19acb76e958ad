"""A policy inside somebody else's training loop: one module per library, imported only by who uses it.

To import one whose library is missing is an `ImportError`, as ever in Python: it names the extra that brings it.

`huggingface.PolicyCallback` for a Hugging Face `Trainer`, `lightning.PolicyCallback` for a Lightning `Trainer`. Both
make the policy when the trainer has its optimizer, enter it, and leave it when training ends; the trainer stays as is.
"""
