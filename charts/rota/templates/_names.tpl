{{/*
Names and labels. A chart that has its own defines templates of the same names: those of the outer chart win.
*/}}

{{/* rota.name is the name of the rota, as in rota.Options.Name. */}}
{{- define "rota.name" -}}
{{- $name := .Values.rota.name | default .Chart.Name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" $name) -}}
{{- fail (printf (join " " (list "rota.name is %q: give the rota the name that rota.Options.Name has in the program, at"
  "most 63 lower-case letters, digits and hyphens")) $name) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{/* rota.fullname is the name of the Deployment and of most other objects. */}}
{{- define "rota.fullname" -}}
{{- if .Values.rota.fullname -}}
{{- .Values.rota.fullname -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* rota.selectorLabels are those of the Pods, which never change. */}}
{{- define "rota.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* rota.labels are those of all objects. */}}
{{- define "rota.labels" -}}
{{ include "rota.selectorLabels" . }}
{{- end }}

{{- define "rota.serviceAccountName" -}}
{{- if .Values.rota.serviceAccount.name -}}
{{- .Values.rota.serviceAccount.name -}}
{{- else if .Values.rota.serviceAccount.create -}}
{{- include "rota.fullname" . -}}
{{- else -}}
{{- fail (join " " (list "rota.serviceAccount.create is false and rota.serviceAccount.name is empty: name the"
  "ServiceAccount that the Pods use. Not the default one, because a fence and the permissions would be for all Pods of"
  "the namespace")) -}}
{{- end -}}
{{- end }}
