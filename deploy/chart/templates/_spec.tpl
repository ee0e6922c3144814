{{/* The spec of the StorageCluster: the value cluster, and the values that many charts have, which have fields there too. */}}
{{- define "holdfast.spec" }}
{{- $values := .Values }}{{ $spec := deepCopy (.Values.cluster | default dict) }}
{{- $global := .Values.global | default dict }}
{{- with $global.imageRegistry }}{{ $_ := set $spec "imageRegistry" . }}{{ end }}
{{- with .Values.imagePullPolicy }}{{ $_ := set $spec "imagePullPolicy" . }}{{ end }}
{{- with concat ($global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) ($spec.imagePullSecrets | default list) | uniq }}
{{- $_ := set $spec "imagePullSecrets" . }}
{{- end }}
{{- $controller := $spec.controller | default dict }}
{{- range list "affinity" "nodeSelector" "tolerations" "topologySpreadConstraints" "podAnnotations" "podLabels" "resources" "extraArgs" }}
{{- $field := . }}{{ with get $values $field }}{{ $_ := set $controller $field . }}{{ end }}
{{- end }}
{{- with .Values.priorityClassName }}{{ $_ := set $controller "priorityClassName" . }}{{ end }}
{{- with $controller }}{{ $_ := set $spec "controller" . }}{{ end }}
{{- toYaml $spec }}
{{- end }}

{{/* An image in the registry of the spec, as the operator names it. The arguments are the spec and the image. */}}
{{- define "holdfast.image" }}
{{- $registry := (index . 0).imageRegistry }}{{ $image := index . 1 }}
{{- if $registry }}{{ printf "%s/%s" $registry (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $image "") }}{{ else }}{{ $image }}{{ end }}
{{- end }}
