{{- define "rota.serviceAccount" -}}
{{- if .Values.rota.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "rota.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "rota.labels" . | nindent 4 }}
  {{- with .Values.rota.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* rota.rbac: what Rota needs, and no more. What the operator itself needs is rota.operatorRBAC. */}}
{{- define "rota.rbac" -}}
{{- include "rota.validate" . -}}
{{- if .Values.rota.rbac.create -}}
{{- $rules := list
  (dict "apiGroups" (list "") "resources" (list "configmaps") "verbs" (list "create"))
  (dict "apiGroups" (list "") "resources" (list "configmaps") "resourceNames" (list (include "rota.name" .))
    "verbs" (list "get" "list" "watch" "update"))
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases")
    "verbs" (list "get" "list" "watch" "create" "update" "delete"))
  (dict "apiGroups" (list "events.k8s.io") "resources" (list "events") "verbs" (list "create")) -}}
# What a member needs in the rota's namespace: one ConfigMap (the table, named as the rota), the members' Leases, and
# events. RBAC cannot limit a create to a name.
{{ include "rota.grant" (dict "root" . "name" (printf "%s-rota" (include "rota.fullname" .)) "rules" $rules
  "namespaces" (list .Release.Namespace)) }}
{{- $labels := list -}}
{{- range include "rota.labelledKinds" . | fromJsonArray -}}
{{- $labels = append $labels (dict "apiGroups" (list .group) "resources" (list .resource)
  "verbs" (list "list" "watch" "patch")) -}}
{{- end -}}
{{- with $labels }}
---
# To label objects, once in an object's life.
{{ include "rota.grant" (dict "root" $ "name" (printf "%s-rota-labels" (include "rota.fullname" $)) "rules" .
  "namespaces" $.Values.rota.namespaces) }}
{{- end }}
{{- end }}
{{- end }}

{{/*
rota.labelledKinds is a JSON list of the kinds whose objects members label: with SlotLabel and with label, the sharded
and the owned kinds; with ShardSelector the owned kinds.
*/}}
{{- define "rota.labelledKinds" -}}
{{- $kinds := list -}}
{{- with .Values.rota -}}
{{- if or (eq .delivery "SlotLabel") (and .label (eq .delivery "Filter")) -}}
{{- $kinds = concat .kinds.sharded .kinds.owned -}}
{{- else if eq .delivery "ShardSelector" -}}
{{- $kinds = .kinds.owned -}}
{{- end -}}
{{- end -}}
{{- uniq $kinds | toJson -}}
{{- end }}

{{/*
rota.operatorRBAC: what the operator needs, with or without Rota. `rules` is a list of RBAC rules. It is a ClusterRole,
or a Role in each of rota.namespaces: include "rota.operatorRBAC" (dict "root" . "rules" $rules).
*/}}
{{- define "rota.operatorRBAC" -}}
{{- if .root.Values.rota.rbac.create -}}
# What the operator does, with or without Rota.
{{ include "rota.grant" (dict "root" .root "name" (include "rota.fullname" .root) "rules" .rules
  "namespaces" .root.Values.rota.namespaces) }}
{{- end }}
{{- end }}

{{/* rota.grant: a Role and its binding in each of `namespaces`; if there are none, a ClusterRole and its binding. */}}
{{- define "rota.grant" -}}
{{- $ := .root -}}
{{- $name := .name -}}
{{- $rules := .rules -}}
{{- $scope := "Cluster" -}}
{{- $namespaces := list "" -}}
{{- if .namespaces -}}
{{- $scope = "" -}}
{{- $namespaces = .namespaces -}}
{{- end -}}
{{- range $i, $namespace := $namespaces }}
{{- if $i }}
---
{{ end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}Role
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "rota.labels" $ | nindent 4 }}
rules:
{{ toYaml $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}RoleBinding
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "rota.labels" $ | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}Role
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ include "rota.serviceAccountName" $ }}
  namespace: {{ $.Release.Namespace }}
{{- end }}
{{- end }}
