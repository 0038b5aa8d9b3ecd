{{/*
rota.podDisruptionBudget: evictions take one replica after the other. It names what may be unavailable, not what must be
available, so that it lets a node with the only replica be drained.
*/}}
{{- define "rota.podDisruptionBudget" -}}
{{- if .Values.rota.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "rota.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "rota.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .Values.rota.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # Pods that never become ready do not hold up a drain
  selector:
    matchLabels:
      {{- include "rota.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* rota.horizontalPodAutoscaler scales the Deployment rota.fullname. */}}
{{- define "rota.horizontalPodAutoscaler" -}}
{{- include "rota.validate" . -}}
{{- with .Values.rota.autoscaling }}
{{- if .enabled -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "rota.fullname" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "rota.labels" $ | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "rota.fullname" $ }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
  {{- if .cpuUtilization }}
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: {{ .cpuUtilization }}
  {{- end }}
  {{- if .oldestWaitingSeconds }}
  - type: Pods
    pods:
      metric:
        name: {{ .oldestWaitingMetric }}
      target:
        type: AverageValue
        averageValue: {{ .oldestWaitingSeconds | quote }}
  {{- end }}
  {{- if .busyWorkersPercent }}
  - type: Pods
    pods:
      metric:
        name: {{ .busyWorkersMetric }}
      target:
        type: AverageValue
        averageValue: {{ mul .busyWorkersPercent 10 }}m
  {{- end }}
  behavior:
    scaleUp:
      # Replicas that join reconcile what they take over once: wait until that shows no more.
      stabilizationWindowSeconds: 60
    scaleDown:
      stabilizationWindowSeconds: {{ .scaleDownStabilizationSeconds }}
      policies: # each replica that leaves hands its share over first
      - type: Pods
        value: 1
        periodSeconds: 60
{{- end }}
{{- end }}
{{- end }}
