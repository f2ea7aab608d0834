# The pinned Python that runs every step, unpacked from the lock's own packages. Nothing of the host takes part: Nix
# opens a tar by itself but no .deb, so the lock has busybox in a tar too, the seed; and busybox opens the packages.
{ system, seedArchive, member, package, packages }:
let
  archive = derivation {
    name = "pih-seed";
    system = "builtin";
    builder = "builtin:unpack-channel";
    src = seedArchive;
    channelName = "busybox";
    preferLocalBuild = true;
  };
  seed = "${archive}/busybox";

  # busybox is the shell and all its tools: scripts need no PATH.
  run =
    name: inputs: script:
    derivation (inputs // { inherit name system seed; builder = seed; args = [ "ash" "-euc" (launcher + script) ]; });

  # launcher FILE ROOT ARGUMENTS [LIBRARIES]: an executable that starts the Python below ROOT by its own ld.so.
  # LIBRARIES: what the shell that starts it adds to where libraries are looked for, after those below ROOT.
  launcher = ''
    launcher() {
      loader=$(echo "$2"/lib/*-linux-gnu/ld-linux-*.so.[12])
      libraries=$(echo "$2"/usr/lib/*-linux-gnu):$(echo "$2"/lib/*-linux-gnu)
      program=$(echo "$2"/usr/bin/python3.[0-9]*)
      mkdir -p "''${1%/*}"
      start='#!%s ash\nexec %s --library-path "%s" %s %s "$@"\n'
      printf "$start" "$seed" "$loader" "$libraries''${4-}" "$program" "$3" >"$1"
      chmod 555 "$1"
    }
  '';

  # The seed is what the Debian package holds: nothing else runs before that is known.
  check = run "pih-seed-check" { inherit package member; } ''
    dpkg-deb -x "$package" package
    cmp "package/$member" "$seed" || { echo "the seed is not $member of $package" >&2; exit 1; }
    sha256sum "package/$member" >"$out"
  '';

  python = run "pih-python" { inherit check packages; } ''
    mkdir "$out"
    for package in $packages; do dpkg-deb -x "$package" "$out"; done
    launcher "$out/bin/python3" "$out" ""
  '';
in
python // { inherit check run seed; }
