{
  description = "A bundle from this repository's lock";

  # Where PIH lies: the address goes here, or `nix registry add pih ADDRESS`, for which Nix needs a network.
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
