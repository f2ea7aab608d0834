# Without flakes: `nix-build -A smollm2-cpu`, or `nix-build --arg lock ./x.lock.json` for a lock of your own.
{
  lock ? null,
}:
let
  mkBundle = file: import ./tools/nix/bundle.nix { lock = file; source = ./.; };
  nameOf = builtins.match "(.*)\\.lock\\.json";
  names = builtins.concatLists (builtins.filter builtins.isList (map nameOf (builtins.attrNames (builtins.readDir ./profiles))));
  bundle = name: { inherit name; value = mkBundle (./profiles + "/${name}.lock.json"); };
in
if lock == null then builtins.listToAttrs (map bundle names) else mkBundle lock
