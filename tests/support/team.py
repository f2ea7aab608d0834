"""A key and what it signs, written from the specifications by nothing of pih; and a carried file of a layout."""

import base64
import hashlib
import json

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pih.bundle import layout as layouts
from pih.carry import export
from pih_steps import oci

# predicate type → media type of the document that is attached besides
STATED = {
    "https://slsa.dev/provenance/v1": "",
    "https://spdx.dev/Document": "application/spdx+json",
    "https://cyclonedx.org/bom": "application/vnd.cyclonedx+json",
}


class Team:
    """A key, and what it signs."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.private = Ed25519PrivateKey.generate()
        raw = self.private.public_key().public_bytes_raw()
        self.keyid = f"ed25519:{hashlib.sha256(raw).hexdigest()[:32]}"
        self.public = folder / "team.pub"
        self.public.write_bytes(
            self.private.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def seal(self, folder, digest=None, alter=lambda payload: payload, junk=1, kinds=tuple(STATED), with_=None):
        """Attach what pih attaches: for each predicate an envelope, for some the plain document too.

        with_: a team that signs as well.
        """
        index = json.loads((folder / "index.json").read_bytes())
        image = index["manifests"][0]
        for kind in kinds:
            predicate = {"note": 'a "subject":[{"digest":{"sha256":"' + "0" * 64 + '"}', "kind": kind}
            payload = oci.canonical(
                {
                    "_type": "https://in-toto.io/Statement/v1",
                    "subject": [
                        {
                            "name": image["annotations"]["org.opencontainers.image.ref.name"],
                            "digest": {"sha256": (digest or image["digest"]).removeprefix("sha256:")},
                        }
                    ],
                    "predicateType": kind,
                    "predicate": predicate,
                }
            )
            media = b"application/vnd.in-toto+json"
            signed = self.private.sign(b"DSSEv1 %d %b %d %b" % (len(media), media, len(payload), payload))
            others = [
                {"keyid": f"other{number:05}", "sig": base64.b64encode(number.to_bytes(64)).decode()}
                for number in range(junk)
            ]
            if with_:
                more = with_.private.sign(b"DSSEv1 %d %b %d %b" % (len(media), media, len(payload), payload))
                others.append({"keyid": with_.keyid, "sig": base64.b64encode(more).decode()})
            envelope = {
                "payload": base64.b64encode(alter(payload)).decode(),
                "payloadType": media.decode(),
                "signatures": [*others, {"keyid": self.keyid, "sig": base64.b64encode(signed).decode()}],
            }
            self._attach(folder, index, "application/vnd.dsse.envelope.v1+json", oci.canonical(envelope))
            if STATED[kind]:
                self._attach(folder, index, STATED[kind], oci.canonical(predicate))
        (folder / "index.json").write_bytes(oci.canonical(index))
        return folder

    def _attach(self, folder, index, kind, data):
        manifest = {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST,
            "artifactType": kind,
            "config": oci.add_bytes(folder, b"{}", "application/vnd.oci.empty.v1+json").descriptor(),
            "layers": [oci.add_bytes(folder, data, kind).descriptor()],
            "subject": {key: index["manifests"][0][key] for key in ("mediaType", "digest", "size")},
        }
        entry = oci.add_bytes(folder, oci.canonical(manifest), oci.MANIFEST).descriptor()
        index["manifests"].append({**entry, "artifactType": kind})


def of_layout(folder, output):
    return export.export(layouts.read(folder), output, weights=None, split=0).files[0]
