{
  description = "A bundle from this repository's lock";

  # Where PIH lies: `nix registry add pih ADDRESS`, or the address itself here.
  inputs.pih.url = "flake:pih";

  outputs =
    { self, pih }:
    let
      bundle = pih.lib.mkBundle { lock = ./deployment.lock.json; };
    in
    {
      packages.${bundle.system} = {
        default = bundle;
        inherit (bundle) artifacts;
      };
    };
}
