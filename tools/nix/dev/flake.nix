{
  description = "What working on PIH takes: `nix develop ./tools/nix/dev`";

  # Apart from the project's own flake, which has no inputs: only people need this.
  inputs.nixpkgs.url = "flake:nixpkgs";

  outputs =
    { self, nixpkgs }:
    let
      shell =
        system:
        let
          packages = nixpkgs.legacyPackages.${system};
        in
        {
          default = packages.mkShell {
            packages = [
              packages.bazelisk
              packages.bubblewrap
              packages.nixfmt-rfc-style
              packages.nodejs
              packages.podman
              packages.python311
              packages.runc
              packages.skopeo
              packages.statix
            ];
          };
        };
    in
    {
      devShells = {
        x86_64-linux = shell "x86_64-linux";
        aarch64-linux = shell "aarch64-linux";
      };
    };
}
