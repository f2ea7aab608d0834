# Without flakes: `nix-build -A smollm2-cpu`, or `nix-build --arg lock ./x.lock.json` for a lock of your own.
{ lock ? null }:
let
  mkBundle = file: import ./tools/nix/bundle.nix { lock = file; source = ./.; };
  matches = map (builtins.match "(.*)\\.lock\\.json") (builtins.attrNames (builtins.readDir ./profiles));
  names = builtins.concatLists (builtins.filter builtins.isList matches);
  bundle = name: { inherit name; value = mkBundle (./profiles + "/${name}.lock.json"); };
in
if lock == null then builtins.listToAttrs (map bundle names) else mkBundle lock
