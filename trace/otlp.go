package trace

import "slices"

// The types are the part of ExportTraceServiceRequest of OTLP 1 that is used here, in its JSON encoding.
type (
	request struct {
		Resources []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource resource     `json:"resource"`
		Scopes   []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		Trace      string      `json:"traceId"`
		ID         string      `json:"spanId"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"` // 1 is internal
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes"`
		Status     *spanStatus `json:"status,omitempty"`
	}
	spanStatus struct {
		Code    int    `json:"code"` // 2 is an error
		Message string `json:"message"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text string `json:"stringValue"`
	}
)

// attributes are those of pairs of keys and texts.
func attributes(pairs ...string) (all []attribute) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, attribute{pair[0], value{pair[1]}})
	}
	return all
}
