{
  description = "A bundle from this repository's lock";

  # Where PIH lies.
  inputs.pih.url = "git+file:///where/pih/lies";

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
