{{/* The settings of this region, of either form of the file, as JSON. */}}
{{- define "replicator.settings" -}}
{{- $file := fromToml (required "config: the text of the configuration file is needed: --set-file config=FILE" .Values.config) -}}
{{- with $file.Error }}{{ fail (printf "config: not TOML: %s" .) }}{{ end -}}
{{- if $file.clusters -}}
{{- $region := required (printf "region: the file is of several regions, name one: %s" (keys $file.clusters | sortAlpha | join ", ")) .Values.region -}}
{{- if not (hasKey $file.clusters $region) }}{{ fail (printf "region: the file has no [clusters.%s]" $region) }}{{ end -}}
{{- mergeOverwrite (deepCopy ($file.cluster_defaults | default dict)) (get $file.clusters $region) | toJson -}}
{{- else -}}
{{- $file | toJson -}}
{{- end -}}
{{- end -}}

{{/* Arguments: the root, the settings, and the component. Without its section, or a flow of this region, it ends at once, for ever. */}}
{{- define "replicator.checkWork" -}}
{{- $root := index . 0 -}}{{- $component := index . 2 -}}
{{- $file := fromToml $root.Values.config -}}
{{- $isEgress := eq $component "egress" -}}
{{- $missing := printf "[%s]" $component -}}
{{- $found := hasKey (index . 1) $component -}}
{{- if $file.clusters -}}
{{- $missing = printf "flow %s %s" (ternary "from" "to" $isEgress) $root.Values.region -}}
{{- $found = not (empty (dig $component (ternary "topics" "sources" $isEgress) "" (index . 1))) -}}
{{- $enabled := dig "enabled" true ($file.flow_defaults | default dict) -}}
{{- range $name, $flow := $file.flows -}}
{{- $ends := splitList "->" $name -}}
{{- $end := ternary (first $ends) (last $ends) $isEgress | trim -}}
{{- if and (eq $end $root.Values.region) (dig "enabled" $enabled $flow) -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "%s.enabled: the file has no %s, so the pods of %s would end at once: add it, or --set %s.enabled=false" $component $missing $component $component) -}}
{{- end -}}
{{- end -}}

{{/* The port of [metrics] listen: probes and Prometheus come from outside of the pod. */}}
{{- define "replicator.port" -}}
{{- $listen := dig "metrics" "listen" "" . -}}
{{- if or (not (regexMatch ":[1-9][0-9]*$" $listen)) (regexMatch "^(127[.]|localhost:|\\[::1\\])" $listen) -}}
{{- fail (printf "config: [metrics] listen is %q: the probes need an address of the pod with a port: listen = \"0.0.0.0:9464\"" $listen) -}}
{{- end -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end -}}

{{/* With a certificate, the port answers over TLS only. A probe does not verify it. */}}
{{- define "replicator.scheme" -}}
{{- if dig "metrics" "tls_cert" "" . }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/* Arguments: the settings, and the name of the section. More than shutdown_timeout and the 6 s in which clients and processes end. */}}
{{- define "replicator.grace" -}}
{{- $text := dig (index . 1) "shutdown_timeout" "10s" (index . 0) -}}
{{- $seconds := 0 -}}
{{- range $unit, $of := dict "d" 86400 "h" 3600 "m" 60 "s" 1 -}}
{{- with regexFind (printf "[0-9]+%s(?:[0-9]|$)" $unit) $text -}}
{{- $seconds = add $seconds (mul $of (regexFind "^[0-9]+" . | int)) -}}
{{- end -}}
{{- end -}}
{{- with regexFind "[0-9]+ms" $text -}}
{{- $seconds = add $seconds (div (add (trimSuffix "ms" . | int) 999) 1000) -}}
{{- end -}}
{{- add $seconds 10 -}}
{{- end -}}

{{/* Arguments: the settings, and the name of the section. */}}
{{- define "replicator.checkSpool" -}}
{{- $folder := dig (index . 1) "spool_dir" "/var/lib/replicator" (index . 0) -}}
{{- if not (regexMatch "^/(var/lib/replicator|tmp)(/|$)" $folder) -}}
{{- fail (printf "config: [%s] spool_dir is %q: only /var/lib/replicator and /tmp are writable in these pods" (index . 1) $folder) -}}
{{- end -}}
{{- end -}}

{{/* A key file is read again when it changes, so its Secret is mounted as a folder. */}}
{{- define "replicator.checkKeys" -}}
{{- $file := dig "encryption" "key_file" "" (index . 0) -}}
{{- $secret := (index . 1).Values.encryptionKeys -}}
{{- if and $file (not (regexMatch "^/etc/replicator-keys/[^/]+$" $file)) -}}
{{- fail (printf "config: [encryption] key_file is %q: the pods have the keys of the Secret `encryptionKeys` as /etc/replicator-keys/KEY" $file) -}}
{{- else if and $file (not $secret) -}}
{{- fail (printf "encryptionKeys: [encryption] key_file is %q: name the Secret that has it" $file) -}}
{{- else if and $secret (not $file) -}}
{{- fail (printf "encryptionKeys: the file has no key_file in [encryption] for the keys of Secret %q" $secret) -}}
{{- end -}}
{{- end -}}

{{- define "replicator.checkMember" -}}
{{- $id := dig "kafka" "consumer" "group.instance.id" "" . -}}
{{- if ne $id "${POD_NAME}" -}}
{{- fail (printf "config: [kafka.consumer] \"group.instance.id\" is %q: each pod is a member under its own name: \"group.instance.id\" = \"${POD_NAME}\"" $id) -}}
{{- end -}}
{{- end -}}

{{/* Arguments: the root, the image, and what stands behind the default tag. */}}
{{- define "replicator.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (printf "%s%s" $root.Chart.AppVersion (index . 2))) -}}
{{- end -}}
{{- end -}}

{{- define "replicator.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Arguments: the root, and the component. */}}
{{- define "replicator.selector" -}}
app.kubernetes.io/name: kafka-segment-replicator
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "replicator.labels" -}}
{{ include "replicator.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end -}}

{{/* Arguments: the root, the component, and what stands behind its name. Each component has the rights of its own role only. */}}
{{- define "replicator.serviceAccount" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "replicator.name" $root }}-{{ $component }}{{ index . 2 }}
  labels: {{- include "replicator.labels" (list $root $component) | nindent 4 }}
  {{- with mergeOverwrite (deepCopy $root.Values.serviceAccount.annotations) (get $root.Values $component).serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{- define "replicator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "replicator.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Arguments: the root, and the values of the component. */}}
{{- define "replicator.environment" -}}
{{- $root := index . 0 -}}
env:
  - {name: REPLICATOR_CONFIG, value: /etc/replicator/replicator.toml}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: TMPDIR, value: /var/lib/replicator}
  {{- with $root.Values.region }}
  - {name: REPLICATOR_REGION, value: {{ . | quote }}}
  {{- end }}
  {{- with (index . 1).env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.secret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- define "replicator.mounts" -}}
- {name: config, mountPath: /etc/replicator, readOnly: true}
- {name: spool, mountPath: /var/lib/replicator}
- {name: tmp, mountPath: /tmp}
{{- if .Values.files }}
- {name: files, mountPath: /etc/replicator-files, readOnly: true}
{{- end }}
{{- if .Values.encryptionKeys }}
- {name: keys, mountPath: /etc/replicator-keys, readOnly: true}
{{- end }}
{{- end -}}

{{/* Arguments: the root, and the values of the component. */}}
{{- define "replicator.volumes" -}}
- {name: config, configMap: {name: {{ include "replicator.name" (index . 0) }}}}
- {name: spool, emptyDir: {sizeLimit: {{ (index . 1).spoolSize }}}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
{{- with (index . 0).Values.files }}
- {name: files, secret: {secretName: {{ . | quote }}, defaultMode: 288}}
{{- end }}
{{- with (index . 0).Values.encryptionKeys }}
- {name: keys, secret: {secretName: {{ . | quote }}, defaultMode: 288}}
{{- end }}
{{- end -}}

{{- define "replicator.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
