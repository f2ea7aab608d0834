"""Reads a seal with other people's code, in an environment that has nothing of PIH: `python independent.py WHAT FILE…`.

Each function prints what it found, as JSON; anything that is not right is an exception.
"""

import base64
import json
import sys
from pathlib import Path


def envelope(file, *keys):
    """DSSE and in-toto: securesystemslib verifies all keys' signatures, in_toto_attestation reads the statement."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    data = json.loads(Path(file).read_text())
    found = Envelope.from_dict(json.loads(Path(file).read_text()))
    known = []
    for text in keys:
        keyid, path = text.split("=")
        known.append(SSlibKey.from_crypto(load_pem_public_key(Path(path).read_bytes()), keyid=keyid))
    accepted = found.verify(known, len(known))
    payload = base64.b64decode(data["payload"])
    statement = json_format.Parse(payload, statement_pb2.Statement())
    Statement.copy_from_pb(statement).validate()
    predicate = json.loads(payload)["predicate"]
    dependencies = []
    if statement.predicate_type == "https://slsa.dev/provenance/v1":
        provenance = json_format.ParseDict(predicate, provenance_pb2.Provenance())
        assert provenance.build_definition.build_type
        assert provenance.run_details.builder.id
        assert not provenance.run_details.metadata.invocation_id
        for item in provenance.build_definition.resolved_dependencies:
            ResourceDescriptor.copy_from_pb(item).validate()
            dependencies.append([item.name, item.uri, dict(item.digest)])
    return {
        "type": data["payloadType"],
        "accepted": sorted(accepted),
        "subject": [[item.name, dict(item.digest)] for item in statement.subject],
        "predicate": statement.predicate_type,
        "dependencies": dependencies,
    }


def spdx(file):
    """SPDX: the validator of spdx-tools."""
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    document = parse_file(file)
    return {
        "problems": [message.validation_message for message in validate_full_spdx_document(document)],
        "files": {
            item.name.removeprefix("."): next(s.value for s in item.checksums if s.algorithm.name == "SHA256")
            for item in document.files
        },
        "packages": {item.name: str(item.license_declared) for item in document.packages},
    }


def cyclonedx(file):
    """CycloneDX: the schema, as cyclonedx-python-lib has it, and its reader."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = Path(file).read_text()
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    bom = Bom.from_json(json.loads(text))
    bom.validate()
    return {
        "problems": [] if problem is None else [str(problem)],
        "components": {item.name: [str(licence.value) for licence in item.licenses] for item in bom.components},
    }


if __name__ == "__main__":
    print(json.dumps({"envelope": envelope, "spdx": spdx, "cyclonedx": cyclonedx}[sys.argv[1]](*sys.argv[2:])))
