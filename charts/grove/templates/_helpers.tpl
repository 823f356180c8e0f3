{{- define "grove.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a selector may rest on: it can never change. Takes the name of a part. */}}
{{- define "grove.selector" -}}
app.kubernetes.io/name: {{ . }}
{{- end -}}

{{- define "grove.labels" -}}
app.kubernetes.io/part-of: grove
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The file that operator and scheduler read. */}}
{{- define "grove.config" -}}
apiVersion: operator.config.grove.io/v1alpha1
kind: OperatorConfiguration
{{ toYaml .Values.config }}
{{- end -}}

{{/* A change makes another ConfigMap, and so a rollout; a rollback finds the old one. */}}
{{- define "grove.configName" -}}
grove-config-{{ include "grove.config" . | sha256sum | trunc 10 }}
{{- end -}}

{{- define "grove.port" -}}
{{- $server := (.Values.config.server | default dict) -}}
{{- $of := (get $server .of | default dict) -}}
{{- if hasKey $of "port" -}}{{ $of.port }}{{- else -}}{{ .default }}{{- end -}}
{{- end -}}

{{- define "grove.ports.webhooks" -}}{{ include "grove.port" (dict "Values" .Values "of" "webhooks" "default" 2750) }}{{- end -}}
{{- define "grove.ports.health" -}}{{ include "grove.port" (dict "Values" .Values "of" "healthProbes" "default" 2751) }}{{- end -}}
{{- define "grove.ports.metrics" -}}{{ include "grove.port" (dict "Values" .Values "of" "metrics" "default" 2752) }}{{- end -}}

{{/* What every container of ours may do: nothing but run. */}}
{{- define "grove.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "grove.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* The pod of a part. Takes "root", "name", "values" and "args". */}}
{{- define "grove.pod" -}}
metadata:
  labels:
    {{- include "grove.selector" .name | nindent 4 }}
    {{- include "grove.labels" .root | nindent 4 }}
  {{- with .values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ .name }}
  # Never one of ours: a scheduler that is down could not bring itself back.
  schedulerName: default-scheduler
  priorityClassName: {{ .values.priorityClassName | quote }}
  securityContext:
    {{- include "grove.podSecurity" . | nindent 4 }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "grove.selector" .name | nindent 8 }}
  containers:
  - name: {{ .name }}
    image: {{ include "grove.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: [{{ .command }}, --config, /etc/grove/config.yaml]
    env:
    - { name: GROVE_IMAGE, value: {{ include "grove.image" .root | quote }} }
    {{- with .root.Values.tracing }}
    {{- if .endpoint }}
    - { name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }} }
    - { name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio }
    - { name: OTEL_TRACES_SAMPLER_ARG, value: {{ .ratio | quote }} }
    {{- end }}
    {{- end }}
    ports:
    {{- if eq .command "operator" }}
    - { name: webhooks, containerPort: {{ include "grove.ports.webhooks" .root }} }
    {{- end }}
    - { name: health, containerPort: {{ include "grove.ports.health" .root }} }
    - { name: metrics, containerPort: {{ include "grove.ports.metrics" .root }} }
    livenessProbe:
      httpGet: { path: /healthz, port: health }
      periodSeconds: 10
      failureThreshold: 3
    readinessProbe:
      httpGet: { path: /readyz, port: health }
      periodSeconds: 5
    resources:
      {{- toYaml .values.resources | nindent 6 }}
    securityContext:
      {{- include "grove.containerSecurity" . | nindent 6 }}
    volumeMounts:
    - { name: config, mountPath: /etc/grove, readOnly: true }
  volumes:
  - name: config
    configMap: { name: {{ include "grove.configName" .root }} }
{{- end -}}

{{/* The Deployment, disruption budget and metrics Service of a part. Takes what grove.pod takes. */}}
{{- define "grove.part" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "grove.selector" .name | nindent 4 }}
    {{- include "grove.labels" .root | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels:
      {{- include "grove.selector" .name | nindent 6 }}
  template:
    {{- include "grove.pod" . | nindent 4 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "grove.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "grove.selector" .name | nindent 6 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "grove.selector" .name | nindent 4 }}
    {{- include "grove.labels" .root | nindent 4 }}
spec:
  selector:
    {{- include "grove.selector" .name | nindent 4 }}
  ports:
  {{- if eq .command "operator" }}
  - { name: webhooks, port: {{ include "grove.ports.webhooks" .root }}, targetPort: webhooks }
  {{- end }}
  - { name: metrics, port: {{ include "grove.ports.metrics" .root }}, targetPort: metrics }
{{- end -}}

{{/* A Role in a namespace, bound to the part's account. Takes "root", "name", "namespace" and "rules". */}}
{{- define "grove.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "grove.labels" .root | nindent 4 }}
rules:
{{ toYaml .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "grove.labels" .root | nindent 4 }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }} }
subjects:
- { kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }} }
{{- end -}}
