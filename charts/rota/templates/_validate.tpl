{{/* rota.validate refuses values that do not go together. values.schema.json refuses those that are wrong alone. */}}
{{- define "rota.validate" -}}
{{- $v := .Values.rota -}}
{{- $stop := add (int $v.leaveTimeoutSeconds) (int $v.gracefulShutdownTimeoutSeconds) -}}
{{- if le (int $v.terminationGracePeriodSeconds) (int $stop) -}}
{{- fail (printf (join " " (list
  "rota.terminationGracePeriodSeconds is %d: a replica would be killed while it hands over. It must be above"
  "rota.leaveTimeoutSeconds (%d) and rota.gracefulShutdownTimeoutSeconds (%d) together"))
  (int $v.terminationGracePeriodSeconds) (int $v.leaveTimeoutSeconds) (int $v.gracefulShutdownTimeoutSeconds)) -}}
{{- end -}}
{{- if and (or $v.label (ne $v.delivery "Filter")) (not $v.kinds.sharded) -}}
{{- fail (printf (join " " (list "rota.kinds.sharded is empty: name the kinds that the operator shards, because the"
  "permissions for delivery %s follow from them")) $v.delivery) -}}
{{- end -}}
{{- if and $v.fence.enabled (not $v.kinds.sharded) -}}
{{- fail (join " " (list "rota.fence.enabled is true and rota.kinds.sharded is empty: name the kinds that the operator"
  "shards, and in rota.kinds.owned those that it creates. The fence is about writes to them")) -}}
{{- end -}}
{{- if $v.canary.enabled -}}
{{- if not (regexMatch "^[!-~]+$" $v.canary.build) -}}
{{- fail (printf (join " " (list "rota.canary.build is %q: name the canary's build with one word, as in `rota canary start"
  "--build`")) $v.canary.build) -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- fail (join " " (list "rota.canary.enabled and rota.autoscaling.enabled: the autoscaler would count the canary's Pods,"
  "which have the labels of the others. Set rota.replicas while there is a canary")) -}}
{{- end -}}
{{- if eq $v.strategy "Recreate" -}}
{{- fail "rota.canary.enabled and rota.strategy Recreate: a canary works beside the others; choose RollingUpdate" -}}
{{- end -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) -}}
{{- fail (printf "rota.autoscaling.minReplicas is %d, above maxReplicas, which is %d"
  (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if not (or $v.autoscaling.cpuUtilization $v.autoscaling.oldestWaitingSeconds $v.autoscaling.busyWorkersPercent) -}}
{{- fail (join " " (list "rota.autoscaling.enabled is true without a metric: set rota.autoscaling.cpuUtilization,"
  "rota.autoscaling.oldestWaitingSeconds or rota.autoscaling.busyWorkersPercent")) -}}
{{- end -}}
{{- end -}}
{{- end }}
