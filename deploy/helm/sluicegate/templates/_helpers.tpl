{{- define "sluicegate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluicegate.fullname" -}}
{{- $name := include "sluicegate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sluicegate.selector" -}}
app.kubernetes.io/name: {{ include "sluicegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluicegate.labels" -}}
{{ include "sluicegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sluicegate.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "sluicegate.fullname" .) "default") -}}
{{- end -}}

{{/* The configuration as YAML, read only for what Kubernetes has to know of it. */}}
{{- define "sluicegate.config" -}}
{{- $config := fromYaml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config is not YAML: %s" $config.Error) -}}
{{- end -}}
{{- $address := dig "admin" "address" "" $config -}}
{{- $isLocal := regexMatch "^(127\\.|localhost|\\[::1\\])" (toString $address) -}}
{{- if or $isLocal (not (hasSuffix (printf ":%v" .Values.ports.admin) $address)) -}}
{{- fail (printf "the probes need `admin: {address: 0.0.0.0:%v}` in config, or ports.admin as it is there" .Values.ports.admin) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* A duration of gateway.yaml, such as 90s or 1m30s, in whole seconds, rounded up. */}}
{{- define "sluicegate.seconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "sec" 1000 "second" 1000 "m" 60000 "min" 60000 "minute" 60000 "h" 3600000 "hour" 3600000 -}}
{{- $text := . | toString | nospace -}}
{{- $parts := regexFindAll "[0-9]+[a-z]+" $text -1 -}}
{{- if ne (join "" $parts) $text -}}
{{- fail (printf "drain in config: %q is not a duration of whole ms, s, min or h" .) -}}
{{- end -}}
{{- $ms := 0 -}}
{{- range $parts -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- if not (hasKey $units $unit) -}}{{ fail (printf "drain in config: %q is not a duration of whole ms, s, min or h" $text) }}{{- end -}}
{{- $ms = add $ms (mul (regexFind "^[0-9]+" . | int64) (get $units $unit)) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end -}}

{{/* How long a Pod may take to end: drain.delay and drain.deadline, and five seconds more. */}}
{{- define "sluicegate.gracePeriod" -}}
{{- $config := include "sluicegate.config" . | fromYaml -}}
{{- $delay := include "sluicegate.seconds" (dig "drain" "delay" "0s" $config) | int -}}
{{- $deadline := include "sluicegate.seconds" (dig "drain" "deadline" "30s" $config) | int -}}
{{- $least := add $delay $deadline -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if not $given -}}{{ add $least 5 }}
{{- else if lt (int $given) (int $least) -}}
{{- fail (printf "terminationGracePeriodSeconds is %v, less than drain.delay and drain.deadline of config together: %v" $given $least) -}}
{{- else -}}{{ $given }}
{{- end -}}
{{- end -}}
