{{/* rota.serviceMonitor: has the Prometheus operator scrape every member, through a Service without an address. */}}
{{- define "rota.serviceMonitor" -}}
{{- with .Values.rota.monitoring.serviceMonitor }}
{{- if .enabled -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "rota.fullname" $ }}-metrics
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "rota.labels" $ | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true # a member that cannot join is the one to look at
  selector:
    {{- include "rota.selectorLabels" $ | nindent 4 }}
  ports:
  - name: metrics
    port: {{ $.Values.rota.ports.metrics }}
    targetPort: metrics
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "rota.fullname" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "rota.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "rota.selectorLabels" $ | nindent 6 }}
  endpoints:
  - port: metrics
    interval: {{ .interval }}
{{- end }}
{{- end }}
{{- end }}

{{/* rota.prometheusRule: the recommended alerts, about all rotas that a Prometheus scrapes: once is enough. */}}
{{- define "rota.prometheusRule" -}}
{{- with .Values.rota.monitoring.prometheusRule }}
{{- if .enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "rota.fullname" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "rota.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- $.Subcharts.rota.Files.Get "files/alerts.yaml" | fromYaml | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
