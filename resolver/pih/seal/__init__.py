"""The seal of a bundle: SBOM, provenance and signatures beside the image, and the check of every byte of it all.

The image itself does not change when it is sealed. May import `bundle`, `inspect`, `build`, `lock` and `trust`.
"""
