{{/* website.tag is the image's tag, in the Deployment of a canary that of the canary. */}}
{{- define "website.tag" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if hasKey . "Canary" -}}{{- .Values.image.canaryTag | default $tag -}}{{- else -}}{{- $tag -}}{{- end -}}
{{- end }}

{{/* website.pod is the template of the Pods: of the Deployment, and of that of a canary. */}}
{{- define "website.pod" -}}
metadata:
  labels:
    {{- include (ternary "rota.canaryLabels" "rota.selectorLabels" (hasKey . "Canary")) . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "rota.podSpec" . | nindent 2 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  containers:
  - name: manager
    image: {{ printf "%s:%s" .Values.image.repository (include "website.tag" .) }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
    - --state-dir=/var/lib/websites
    - --health-probe-bind-address=:{{ .Values.rota.ports.probes }}
    - --metrics-bind-address=:{{ .Values.rota.ports.metrics }}
    {{- with .Values.rota.namespaces }}
    - --namespaces={{ join "," . }}
    {{- end }}
    {{- with include "rota.args" . }}
    {{- . | nindent 4 }}
    {{- end }}
    env:
    {{- include "rota.env" (dict "container" "manager") | nindent 4 }}
    ports:
    {{- include "rota.ports" . | nindent 4 }}
    {{- include "rota.probes" . | nindent 4 }}
    securityContext:
      {{- include "rota.containerSecurityContext" . | nindent 6 }}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    volumeMounts:
    - name: state
      mountPath: /var/lib/websites
  volumes:
  - name: state # what the replicas share outside Kubernetes
    persistentVolumeClaim:
      claimName: {{ .Values.state.existingClaim | default (printf "%s-pages" (include "rota.fullname" .)) }}
{{- end }}
