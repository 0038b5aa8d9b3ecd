{{/*
Parts of a Deployment. Each is included with the chart's own context, and indented by the caller.
*/}}

{{/* rota.deploymentSpec: replicas and strategy, for a Deployment's spec. An autoscaler sets the replicas itself. */}}
{{- define "rota.deploymentSpec" -}}
{{- include "rota.validate" . -}}
{{- if not .Values.rota.autoscaling.enabled -}}
replicas: {{ .Values.rota.replicas }} # all of them work
{{ end -}}
{{- if eq .Values.rota.strategy "Recreate" -}}
strategy:
  type: Recreate
{{- else -}}
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: 0 # a new replica is there before an old one hands its share to it
    maxSurge: 1
{{- end }}
{{- end }}

{{/* rota.canaryDeploymentSpec: the same for the Deployment of a canary. */}}
{{- define "rota.canaryDeploymentSpec" -}}
{{- include "rota.validate" . -}}
replicas: {{ .Values.rota.canary.replicas }}
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: 0
    maxSurge: 1
{{- end }}

{{/*
rota.canaryLabels tell a canary's Pods from the others. Services, disruption budgets and monitors are about both.
*/}}
{{- define "rota.canaryLabels" -}}
{{ include "rota.selectorLabels" . }}
app.kubernetes.io/component: canary
{{- end }}

{{/* rota.podSpec: for the Pod's spec. */}}
{{- define "rota.podSpec" -}}
serviceAccountName: {{ include "rota.serviceAccountName" . }}
# Above rota.Options.LeaveTimeout and the manager's GracefulShutdownTimeout together.
terminationGracePeriodSeconds: {{ .Values.rota.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.rota.security.runAsUser }}
  runAsGroup: {{ .Values.rota.security.runAsUser }}
  fsGroup: {{ .Values.rota.security.fsGroup }}
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.rota.topologySpread }}
{{- if .enabled }}
topologySpreadConstraints:
{{- range .topologyKeys }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: {{ $.Values.rota.topologySpread.whenUnsatisfiable }}
  labelSelector:
    matchLabels:
      {{- include "rota.selectorLabels" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash] # a rollout's new Pods are spread among themselves
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* rota.containerSecurityContext: for a container that Pod Security's profile "restricted" admits. */}}
{{- define "rota.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/*
rota.env: items of a container's env. CONTAINER_NAME is the argument `container`, the container's name:
include "rota.env" (dict "container" "manager").
*/}}
{{- define "rota.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
- name: CONTAINER_NAME
  value: {{ required "rota.env: give it the container's name, as its template says" .container }}
{{- end }}

{{/*
rota.args: items of a container's args, for a program that calls rota.Options.BindFlags. May be empty. In the Deployment
of a canary its context has Canary: include "rota.args" (merge (dict "Canary" true) .).
*/}}
{{- define "rota.args" -}}
{{- $args := list -}}
{{- with .Values.rota -}}
{{- if ne .delivery "Filter" -}}{{- $args = append $args (printf "--rota-delivery=%s" .delivery) -}}{{- end -}}
{{- if .label -}}{{- $args = append $args "--rota-label" -}}{{- end -}}
{{- if and .namespaces (or .label (ne .delivery "Filter")) -}}
{{- $args = append $args (printf "--rota-label-namespaces=%s" (join "," .namespaces)) -}}
{{- end -}}
{{- if .leaseDuration -}}{{- $args = append $args (printf "--rota-lease-duration=%s" .leaseDuration) -}}{{- end -}}
{{- with .leaderElectionID -}}{{- $args = append $args (printf "--rota-leader-election-id=%s" .) -}}{{- end -}}
{{- if .memberLabels -}}
{{- $labels := list -}}
{{- range $name, $value := .memberLabels -}}{{- $labels = append $labels (printf "%s=%s" $name $value) -}}{{- end -}}
{{- $args = append $args (printf "--rota-member-labels=%s" (join "," $labels)) -}}
{{- end -}}
{{- end -}}
{{- $build := ternary .Values.rota.canary.build .Values.rota.build (hasKey . "Canary") -}}
{{- with $build -}}{{- $args = append $args (printf "--rota-build=%s" .) -}}{{- end -}}
{{- if hasKey . "Canary" -}}
{{- $args = append $args (printf "--rota-workload=%s" (include "rota.fullname" .)) -}}
{{- end -}}
{{- if $args -}}{{- toYaml $args -}}{{- end -}}
{{- end }}

{{/* rota.ports: items of a container's ports. */}}
{{- define "rota.ports" -}}
- name: metrics
  containerPort: {{ .Values.rota.ports.metrics }}
- name: probes
  containerPort: {{ .Values.rota.ports.probes }}
{{- end }}

{{/* rota.probes: for a container that serves the manager's probes. */}}
{{- define "rota.probes" -}}
readinessProbe: # passes once the member has joined
  httpGet:
    path: /readyz
    port: probes
  periodSeconds: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: probes
  timeoutSeconds: 10
{{- end }}
