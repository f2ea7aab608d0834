{
  description = "PIH: sealed inference bundles, each built from its lock";

  # No inputs: the locks name all that a build needs, and `pih fetch` brings it.
  outputs =
    { self }:
    let
      system = "x86_64-linux";
      bundles = import ./default.nix { };
      each = outputs: builtins.listToAttrs (builtins.concatMap outputs (builtins.attrNames bundles));
      app = program: description: {
        type = "app";
        inherit program;
        meta = { inherit description; };
      };
    in
    {
      # In a flake of your own: pih.lib.mkBundle { lock = ./deployment.lock.json; }
      lib.mkBundle = { lock }: import ./default.nix { inherit lock; };

      packages.${system} = bundles // each (name: [
        { name = "${name}-artifacts"; value = bundles.${name}.artifacts; }
      ]);

      apps.${system} = each (name: [
        { inherit name; value = app "${bundles.${name}.worker}/bin/start" "starts the worker"; }
        { name = "${name}-load"; value = app "${bundles.${name}.load}/bin/load" "hands the image to podman or docker"; }
      ]);

      checks.${system} = each (name: [
        { name = "${name}-seed"; value = bundles.${name}.python.check; }
        { name = "${name}-lock"; value = bundles.${name}.steps.plan; }
      ]);

      templates.default = {
        path = ./tools/nix/template;
        description = "a repository of your own that builds a bundle from its lock";
      };
    };
}
