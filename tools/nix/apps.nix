# What `nix run` starts.
{ data, image, python, steps }:
{
  # The worker, by the Python and the C library of its own image, unpacked: no container engine takes part.
  worker = python.run "pih-worker" {
    inherit image python;
    weights = if data.weights.delivery == "embed" then "" else steps.weights;
    digests = if data.weights.delivery == "embed" then "" else steps.digests;
  } ''
    "$python/bin/python3" -I -B -X utf8 - <<'end'
    import json, os, tarfile
    image = os.environ["image"]
    with open(f"{image}/manifest.json") as manifest:
        layers = json.load(manifest)[0]["Layers"]
    for layer in layers:
        with tarfile.open(f"{image}/{layer}") as archive:
            archive.extractall(os.environ["out"])
    end
    if [ -n "$weights" ]; then
      mkdir -p "$out/pih/weights"
      ln -s "$weights" "$out/pih/weights/weights.safetensors"
      ln -s "$digests" "$out/pih/weights/weights.digests"
    fi
    # The loader does not read LD_LIBRARY_PATH by itself here, and a driver's library may lie where only that says.
    host="\''${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
    launcher "$out/bin/start" "$out" "-I -B -X utf8 $out/usr/bin/pih-worker" "$host"
  '';

  # Hands the image to the host's container engine: podman, or the one that is named.
  load = python.run "pih-load" { inherit image; } ''
    mkdir -p "$out/bin"
    printf '#!%s ash\n%s tar -C %s -c . | "''${1:-podman}" load\n' "$seed" "$seed" "$image" >"$out/bin/load"
    chmod 555 "$out/bin/load"
  '';
}
