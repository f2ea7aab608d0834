# The content of a lock; throws where nothing can be built from it, in the words of `pih build`.
file:
let
  inherit (builtins)
    attrNames
    concatMap
    filter
    head
    isString
    toJSON
    ;

  data = builtins.fromJSON (builtins.readFile file);
  schema = data.schema or null;
  missing = filter (key: !data ? ${key}) [ "artifacts" "build" "limits" "plan" "profile" "target" ];
  target = "${data.target.os}/${data.target.arch}";

  # What a step was told twice, and otherwise the second time.
  same = {
    expected_plan_sha256 = data.plan.sha256;
    inherit (data.target) arch;
    limits = {
      inherit (data.limits) context tokens;
      seqs = data.limits.batch;
    };
    inherit (data.limits) kv_dtype spill;
  };
  shown = value: if isString value then "'${value}'" else toJSON value;
  otherwise =
    step: key:
    let
      found = step.params.${key} or same.${key};
    in
    if found == same.${key} then
      [ ]
    else
      [ "step '${step.id}' has ${key} ${shown found}, the lock ${shown same.${key}}" ];
  contradictions = concatMap (step: concatMap (otherwise step) (attrNames same)) data.build.steps;

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
