# A bundle from its lock: one derivation for each step of lock.build, holding what the step declares and nothing else.
# The lock decides; no step is known here. lock: the lock file. source: PIH's source tree.
{ lock, source }:
let
  inherit (builtins) any concatStringsSep filter head listToAttrs match pathExists stringLength substring;

  data = import ./lock.nix lock;
  inherit (data) build;
  system = "${data.target.arch}-${data.target.os}";

  table = value: names: listToAttrs (map (name: { inherit name; value = value name; }) names);
  hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
  storeName = text: concatStringsSep "_" (filter builtins.isString (builtins.split "[^A-Za-z0-9+._?=-]" text));

  # A locked file, at the path that `nix-store --add-fixed` gives it: one that was brought is there and never built.
  # For one that is not there, Nix tells the address that it could not read; so that says what to do.
  fetched =
    name: sha256: option:
    derivation {
      inherit name;
      system = "builtin";
      builder = "builtin:fetchurl";
      url = "pih fetch --profile ${data.profile.file}${option} --builder nix";
      outputHashMode = "flat";
      outputHashAlgo = "sha256";
      outputHash = sha256;
      preferLocalBuild = true;
    };

  # A file of the user's own, beside the lock, is taken from there.
  beside =
    purl:
    let
      found = match "pkg:generic/file\\?path=([^%]*)" purl;
    in
    if found == null then [ ] else filter pathExists [ (dirOf lock + "/${head found}") ];

  fileOf =
    { name, version, sha256, purls, ... }:
    let
      file = storeName "${name}-${version}";
      own = builtins.concatMap beside purls;
    in
    if own == [ ] then
      fetched file sha256 (if builtins.elem name ofImage then "" else " --weights")
    else
      builtins.path { path = head own; name = file; recursive = false; inherit sha256; };

  # Names of the files that the image is made from; weights that are delivered separately are not among them.
  ofImage =
    let
      byId = listToAttrs (map (step: { name = step.id; value = step; }) build.steps);
      closure = builtins.genericClosure {
        startSet = [ { key = last.id; } ];
        operator = { key }: map (id: { key = id; }) byId.${key}.steps;
      };
      taken = builtins.concatMap ({ key }: byId.${key}.artifacts ++ byId.${key}.tools) closure;
    in
    build.interpreter ++ [ build.seed.deb ] ++ taken;

  files = listToAttrs (map (item: { inherit (item) name; value = fileOf item; }) data.artifacts);
  seedArchive = fetched "pih-seed.tar" build.seed.sha256 "";
  located = map (item: { inherit (item) sha256 size; path = files.${item.name}; });
  seedFile = { inherit (build.seed) sha256 size; path = seedArchive; };
  locked = located data.artifacts ++ [ seedFile ];
  listOf = files: concatStringsSep "" (map (file: "${file.sha256}  - ${toString file.size} ${file.path}\n") files);

  python = import ./python.nix {
    inherit system seedArchive;
    inherit (build.seed) member;
    package = files.${build.seed.deb};
    packages = map (name: files.${name}) build.interpreter;
  };

  # What a step sees of the source tree, each file at its place. Never the whole: an edit elsewhere rebuilds nothing.
  sourceOf =
    step:
    let
      trees = filter (tree: tree != "lock") step.trees;
      missing = filter (tree: !pathExists (source + "/${tree}")) trees;
      wanted =
        path: type:
        let
          place = substring (stringLength (toString source) + 1) (-1) path;
          touches = tree: place == tree || hasPrefix "${tree}/" place || hasPrefix "${place}/" tree;
          # for the step to refuse: beside a tree it would hide that from Bazel
          ends = match ".+/BUILD(\\.bazel)?" place != null;
          cache = match ".*/__pycache__" path != null || (type == "regular" && match ".*\\.pyc" path != null);
        in
        !cache && (ends || any touches trees);
    in
    if missing != [ ] then
      throw "the source tree of PIH has no ${head missing}, which ${toString lock} names"
    else
      builtins.path { path = source; name = "pih-${step.id}-source"; filter = wanted; };

  lockFile = builtins.path { path = lock; name = "lock.json"; };

  # The step's specification reaches it as a file, so that its size has no limit.
  stepOf =
    step:
    let
      tree = sourceOf step;
    in
    derivation {
      name = "pih-${step.id}";
      inherit system python;
      inherit (python) seed;
      inherit (step) run;
      builder = python.seed;
      args = [ "ash" "-euc" ''
        export HOME="$TMPDIR"
        exec "$python/bin/python3" -I -B -X utf8 "$program" "$run" "$specificationPath"
      '' ];
      program = "${tree}/resolver/pih_steps";
      passAsFile = [ "specification" ];
      specification = builtins.toJSON {
        inherit (step) params;
        artifacts = table (name: files.${name}) step.artifacts;
        trees = table (name: if name == "lock" then lockFile else "${tree}/${name}") step.trees;
        steps = table (name: steps.${name}) step.steps;
        tools = map (name: files.${name}) step.tools;
        output = builtins.placeholder "out";
      };
      LC_ALL = "C.UTF-8";
      TZ = "UTC";
      SOURCE_DATE_EPOCH = "0";
    };

  steps = listToAttrs (map (step: { name = step.id; value = stepOf step; }) build.steps);
  last = builtins.elemAt build.steps (builtins.length build.steps - 1);
  image = steps.${last.id};

  # They are all there. This holds none of them, so that a machine that takes steps from a binary cache needs none.
  present = python.run "pih-present" {
    passAsFile = [ "taken" ];
    taken = listOf (located (filter (item: builtins.elem item.name ofImage) data.artifacts) ++ [ seedFile ]);
  } ''
    while read -r sha256 dash size path; do
      found=$(stat -c %s "$path")
      [ "$found" = "$size" ] || { echo "the lock says $size bytes, $path has $found: pih lock" >&2; exit 1; }
    done <"$takenPath"
    echo "every file is there" >"$out"
  '';

  # What is built when the image is asked for. A step's key may not hold what the step does not read; so it is here
  # that a file that is not there is found, and Nix gets to it before it gets to any step, which is one link further.
  bundle = python.run "pih-bundle" { inherit image present; } ''
    ln -s "$image" "$out"
  '';

  # What steps give refers to nothing. This refers to every locked file, so that Nix can tell, compare and copy them.
  artifacts = python.run "pih-artifacts" {
    passAsFile = [ "locked" ];
    locked = listOf locked;
  } ''
    mkdir "$out"
    while read -r sha256 dash size path; do
      found="$(sha256sum <"$path") $(stat -c %s "$path")"
      [ "$found" = "$sha256  $dash $size" ] || { echo "the lock says $sha256 $size, $path is $found" >&2; exit 1; }
      name=''${path##*/}
      ln -s "$path" "$out/''${name#*-}"
    done <"$lockedPath"
  '';
in
bundle
// { inherit artifacts files locked present python steps; }
// import ./apps.nix { inherit data image python steps; }
