{
  description = "As much of nixpkgs as the dev shell asks for: each package is its own name";

  outputs =
    { self }:
    let
      packages = {
        mkShell =
          { packages }:
          derivation {
            name = "shell";
            builder = "none";
            system = "x86_64-linux";
            inherit packages;
          };
        bazelisk = "bazelisk";
        bubblewrap = "bubblewrap";
        nixfmt-rfc-style = "nixfmt";
        nodejs = "nodejs";
        podman = "podman";
        python311 = "python311";
        runc = "runc";
        skopeo = "skopeo";
        statix = "statix";
      };
    in
    {
      legacyPackages.x86_64-linux = packages;
    };
}
