# The content of a lock; throws where nothing can be built from it, in the words of `pih build`.
file:
let
  inherit (builtins) concatMap filter head toJSON;

  data = builtins.fromJSON (builtins.readFile file);
  schema = data.schema or null;
  missing = filter (key: !data ? ${key}) [ "artifacts" "build" "plan" "profile" "target" ];
  target = "${data.target.os}/${data.target.arch}";

  # What a step was told twice, and otherwise the second time.
  otherwise =
    step: key: said:
    let
      found = step.params.${key} or said;
    in
    if found == said then [ ] else [ "step '${step.id}' has ${key} '${found}', the lock '${said}'" ];
  contradictions = concatMap (
    step: otherwise step "expected_plan_sha256" data.plan.sha256 ++ otherwise step "arch" data.target.arch
  ) data.build.steps;

  refuse = problem: throw "${toString file}: ${problem}; write the lock again: pih lock";
in
if schema != 1 then
  refuse "lock schema ${toJSON schema} is not 1"
else if missing != [ ] then
  refuse "${head missing}: missing"
else if target != "linux/x86_64" then
  refuse "the target ${target} is not supported, but linux/x86_64 is"
else if contradictions != [ ] then
  refuse (head contradictions)
else
  data
