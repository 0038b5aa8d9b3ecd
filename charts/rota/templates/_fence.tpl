{{/*
rota.fence: the policy by which the API server refuses the writes of Pods that are not members, as `rota fence` prints
it. The keeper is shared by all fences of a cluster and stays when a release goes: where somebody else has installed it,
it is left out.
*/}}
{{- define "rota.fence" -}}
{{- include "rota.validate" . -}}
{{- if .Values.rota.fence.enabled -}}
{{- $name := include "rota.name" . -}}
{{- $account := include "rota.serviceAccountName" . -}}
{{- $object := printf "rota-fence.%s.%s" .Release.Namespace $name -}}
{{- $off := printf "To take the fence down: kubectl annotate configmap -n %s %s rota.dev/fence=off"
  .Release.Namespace $name -}}
{{- $kinds := concat .Values.rota.kinds.sharded .Values.rota.kinds.owned | uniq -}}
{{- $groups := list -}}
{{- $own := false -}}
{{- range $kinds -}}
{{- $groups = append $groups .group | uniq -}}
{{- if or (and (eq .group "") (eq .resource "configmaps"))
  (and (eq .group "coordination.k8s.io") (eq .resource "leases")) -}}
{{- $own = true -}}
{{- end -}}
{{- end -}}
{{- if and .Values.rota.fence.keeper (include "rota.fence.keeperIsOurs" .) -}}
{{ include "rota.fence.keeper" . }}
---
{{ end -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $object }}
  labels:
    rota.dev/rota: {{ $name }}
    {{- include "rota.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  paramKind:
    apiVersion: v1
    kind: ConfigMap
  matchConstraints:
    resourceRules:
    {{- range $group := $groups }}
    - apiGroups: [{{ $group | quote }}]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE, DELETE]
      resources:
      {{- range $kinds }}
      {{- if eq .group $group }}
      - {{ .resource }}
      - {{ .resource }}/*
      {{- end }}
      {{- end }}
    {{- end }}
  matchConditions:
  - name: written-by-the-controller
    expression: request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ $account }}'
  {{- if $own }}
  - name: not-the-rota-itself # a member renews its Lease and writes the table before the table names it
    expression: >-
      !(request.resource.resource in ['configmaps', 'leases']
      && request.?namespace.orValue('') == '{{ .Release.Namespace }}'
      && (request.?name.orValue('') == '{{ $name }}' || request.?name.orValue('').startsWith('{{ $name }}.')))
  {{- end }}
  variables:
  - name: podUID
    expression: request.userInfo.?extra[?'authentication.kubernetes.io/pod-uid'][?0].orValue('')
  - name: podName
    expression: request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'][?0].orValue('')
  - name: members
    expression: params.?data[?'podUIDs'].orValue('').split(' ')
  - name: epoch
    expression: params.?data[?'epoch'].orValue('?')
  - name: "off"
    expression: params.metadata.?annotations[?'rota.dev/fence'].orValue('') == 'off'
  validations:
  - expression: variables.off || variables.podUID != ''
    reason: Forbidden
    message: >-
      the fence of rota {{ .Release.Namespace }}/{{ $name }} admits writes of ServiceAccount
      {{ .Release.Namespace }}/{{ $account }} from the Pods of members only, and this token names no Pod. Use the token
      that the kubelet mounts into the Pod, or another user. {{ $off }}
  - expression: variables.off || variables.podUID == '' || variables.podUID in variables.members
    reason: Forbidden
    message: {{ printf "the fence of rota %s/%s: this Pod is not a member. %s" .Release.Namespace $name $off | quote }}
    messageExpression: >-
      'the fence of rota {{ .Release.Namespace }}/{{ $name }}: Pod ' + variables.podName +
      ' (UID ' + variables.podUID + ') is not a member in epoch ' + variables.epoch +
      ': it was expelled, has left, has not joined, or does not report its POD_UID. {{ $off }}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $object }}
  labels:
    rota.dev/rota: {{ $name }}
    {{- include "rota.labels" . | nindent 4 }}
spec:
  policyName: {{ $object }}
  paramRef:
    namespace: {{ .Release.Namespace }}
    name: {{ $name }}
    parameterNotFoundAction: Allow # without a table no member works
  validationActions: [Deny]
{{- end }}
{{- end }}

{{/*
rota.fence.keeperIsOurs is empty if the keeper is in the cluster and not this release's. Helm looks there in an install
or upgrade; `helm template` does not.
*/}}
{{- define "rota.fence.keeperIsOurs" -}}
{{- $there := lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" "rota-fence-keeper" -}}
{{- if not $there -}}
true
{{- else -}}
{{- $about := (get $there "metadata").annotations | default dict -}}
{{- if and (eq (get $about "meta.helm.sh/release-name") .Release.Name)
  (eq (get $about "meta.helm.sh/release-namespace") .Release.Namespace) -}}
true
{{- end -}}
{{- end -}}
{{- end }}

{{- define "rota.fence.keeper" -}}
# All fences of the cluster share this object. Leave it when you remove this fence.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: rota-fence-keeper
  annotations:
    {{- include "rota.fence.keeperAnnotations" . | nindent 4 }}
spec:
  failurePolicy: Ignore
  paramKind:
    apiVersion: v1
    kind: ConfigMap
  matchConstraints:
    resourceRules:
    - apiGroups: [no-such-group.rota.dev]
      apiVersions: [v1]
      operations: [CONNECT]
      resources: [nothing]
  validations:
  - expression: "true"
---
# All fences of the cluster share this object. Leave it when you remove this fence.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: rota-fence-keeper
  annotations:
    {{- include "rota.fence.keeperAnnotations" . | nindent 4 }}
spec:
  policyName: rota-fence-keeper
  paramRef:
    namespace: kube-system
    name: no-such-configmap
    parameterNotFoundAction: Allow
  validationActions: [Deny]
{{- end }}

{{- define "rota.fence.keeperAnnotations" -}}
argocd.argoproj.io/sync-options: Prune=false,Delete=false
kustomize.toolkit.fluxcd.io/prune: disabled
helm.sh/resource-policy: keep
kubernetes.io/description: Keeps API servers following ConfigMaps; fences of Rota depend on it. Do not delete it.
{{- end }}
