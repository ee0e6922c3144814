package v1beta1

import (
	stdjson "encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// broken has for each kind one field that cannot be decoded, where it is, and what of the object can.
var broken = map[string]struct {
	text, field string
	rest        func(Object) bool
}{
	"StorageCluster": {
		`"spec":{"debug":true,"pools":[{"name":"a","path":"/srv/a"},{"name":"b","path":7,"engine":"Image"}]}`, `spec.pools[1].path: 7`,
		func(o Object) bool {
			s := o.(*StorageCluster).Spec
			return s.Debug && len(s.Pools) == 2 && s.Pools[0].Path == "/srv/a" && s.Pools[1].Engine == "Image" && s.Pools[1].Path == ""
		},
	},
	"StorageUpgrade": {
		`"spec":{"version":"v2","rollback":"no"},"status":{"phase":"Running"}`, `spec.rollback: "no"`,
		func(o Object) bool {
			u := o.(*StorageUpgrade)
			return u.Spec.Version == "v2" && u.Spec.Rollback == nil && u.Status.Phase == UpgradeRunning
		},
	},
	"NodeJob": {
		`"spec":{"image":"i","backoffLimit":1e3,"tolerations":[{"operator":"Exists"}]}`, `spec.backoffLimit: 1e3`,
		func(o Object) bool {
			s := o.(*NodeJob).Spec
			return s.Image == "i" && s.BackoffLimit == nil && len(s.Tolerations) == 1
		},
	},
	"NFSServer": {
		`"spec":{"storage":{"size":"1e1.5","storageClassName":"x"},"maxExports":3}`, `spec.storage.size: "1e1.5"`,
		func(o Object) bool {
			s := o.(*NFSServer).Spec
			return s.Storage != nil && s.Storage.Size == nil && *s.Storage.StorageClassName == "x" && s.MaxExports == 3
		},
	},
	"StorageNode": {
		`"spec":{"discard":[{"kind":"Volume","name":"a","uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00Z"}]},"status":{"version":"v1"}`, `spec.discard[0].requestedAt: "2026-11-24T03:00:00Z"`,
		func(o Object) bool {
			n := o.(*StorageNode)
			return n.Status.Version == "v1" && len(n.Spec.Discard) == 1 && n.Spec.Discard[0].Name == "a" && n.Spec.Discard[0].UID == "u"
		},
	},
	"Volume": {
		`"spec":{"name":"a","node":"n","labels":{"a":1},"size":{"required":"1Gi","limit":"lots"}},"status":{"phase":"Ready"}`, `spec.size.limit: "lots"`,
		func(o Object) bool {
			v := o.(*Volume)
			return v.Spec.Name == "a" && v.Spec.Node == "n" && v.Spec.Size.Required.Value() == 1<<30 && v.Status.Phase == PhaseReady
		},
	},
	"Snapshot": {
		`"spec":{"name":"a","node":"n","sourceRef":{"kind":"Volume","name":"v"},"group":{"name":"g","volumes":"v"}}`, `spec.group.volumes: "v"`,
		func(o Object) bool {
			s := o.(*Snapshot).Spec
			return s.Node == "n" && s.Group != nil && s.Group.Name == "g" && s.Group.Volumes == nil
		},
	},
}

func object(kind, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"holdfast.dev/v1beta1","kind":%q,"metadata":{"name":"bad","uid":"u","resourceVersion":"7","finalizers":["f"]},%s}`, kind, rest)
}

func TestDecode_InvalidObjectKeepsItsValidFields(t *testing.T) {
	for kind, c := range broken {
		o := decoded(t, object(kind, c.text))
		err := o.Unreadable()
		if err == nil || !strings.Contains(err.Error(), c.field+" cannot be read: ") || len(err.Error()) > 800 {
			t.Errorf("%s: %v", kind, err)
		}
		if o.GetName() != "bad" || o.GetUID() != "u" || o.GetResourceVersion() != "7" || len(o.GetFinalizers()) != 1 || o.GetObjectKind().GroupVersionKind().Kind != kind {
			t.Errorf("%s: its metadata is %+v", kind, o)
		}
		if !c.rest(o) {
			t.Errorf("%s: what is left is %+v", kind, o)
		}
		if copied := o.DeepCopyObject().(Object); copied.Unreadable() == nil || !reflect.DeepEqual(o, copied) {
			t.Errorf("%s: its copy is %+v", kind, copied)
		}
		if text, err := stdjson.Marshal(o); err != nil || strings.Contains(strings.ToLower(string(text)), "decodeerror") || strings.Contains(string(text), "cannot be read") {
			t.Errorf("%s: it is written as %s, %v", kind, text, err)
		}
	}
	if len(broken) != 7 {
		t.Errorf("%d kinds were tried", len(broken))
	}
}

func decoded(t *testing.T, text string) Object {
	t.Helper()
	o, err := runtime.Decode(serializer.NewCodecFactory(newScheme(t)).UniversalDeserializer(), []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o.(Object)
}

func TestDecode_InvalidObjectHidesNoOtherOfAList(t *testing.T) {
	codec := serializer.NewCodecFactory(newScheme(t)).UniversalDeserializer()
	for kind, c := range broken {
		good := `{"metadata":{"name":"good"},"spec":{}}`
		text := fmt.Sprintf(`{"apiVersion":"holdfast.dev/v1beta1","kind":"%sList","metadata":{"resourceVersion":"9"},"items":[%s,%s,%[2]s]}`, kind, good, object(kind, c.text))
		list, err := runtime.Decode(codec, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		items := reflect.ValueOf(list).Elem().FieldByName("Items")
		if items.Len() != 3 {
			t.Errorf("%s: the list has %d", kind, items.Len())
			continue
		}
		for i, name := range []string{"good", "bad", "good"} {
			o := items.Index(i).Addr().Interface().(Object)
			if o.GetName() != name || (o.Unreadable() != nil) != (name == "bad") {
				t.Errorf("%s: item %d is %s, %v", kind, i, o.GetName(), o.Unreadable())
			}
		}
	}
}

func TestDecode_InvalidObjectDoesNotEndAWatch(t *testing.T) {
	codecs := serializer.NewCodecFactory(newScheme(t))
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	for kind, c := range broken {
		event := fmt.Sprintf(`{"type":"MODIFIED","object":%s}`, object(kind, c.text))
		frames := info.StreamSerializer.NewFrameReader(io.NopCloser(strings.NewReader(event)))
		decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), codecs.UniversalDeserializer())
		is, o, err := decoder.Decode()
		if err != nil || is != watch.Modified || o.(Object).Unreadable() == nil {
			t.Errorf("%s: the watch brings %s %v, %v", kind, is, o, err)
		}
	}
}

func TestDecode_CorrectedObjectIsReadableAgain(t *testing.T) {
	v := decoded(t, object("Volume", broken["Volume"].text)).(*Volume)
	if err := stdjson.Unmarshal([]byte(object("Volume", `"spec":{"name":"a","node":"n"}`)), v); err != nil || v.Unreadable() != nil {
		t.Errorf("%v, %v", err, v.Unreadable())
	}
}

func TestDecode_OtherJSONIsAnError(t *testing.T) {
	for _, text := range []string{`[]`, `7`, `"a"`, `true`} {
		if err := stdjson.Unmarshal([]byte(text), &Volume{}); err == nil {
			t.Errorf("%s was decoded", text)
		}
	}
}

func TestFields_NamesAreCaseSensitive(t *testing.T) {
	v := decoded(t, object("Volume", `"spec":{"name":"a","Node":"wrong","node":"n","POOL":"p","inodes":9007199254740993}`)).(*Volume)
	if v.Unreadable() != nil || v.Spec.Node != "n" || v.Spec.Pool != "" || v.Spec.Inodes != 1<<53+1 {
		t.Errorf("it is %+v, %v", v.Spec, v.Unreadable())
	}
}

func TestDecode_ManyInvalidFieldsAreNamedBriefly(t *testing.T) {
	pools := strings.Repeat(`{"name":`+strings.Repeat("9", 5000)+`},`, 100)
	o := decoded(t, object("StorageCluster", `"spec":{"pools":[`+strings.TrimSuffix(pools, ",")+`]}`))
	if m := o.Unreadable().Error(); len(m) > 2000 || !strings.Contains(m, "spec.pools[0].name: 999") || !strings.Contains(m, "and 95 more") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
}

func FuzzDecodingNeverPanicsAndKeepsTheName(f *testing.F) {
	kinds := []string{"StorageCluster", "StorageUpgrade", "NodeJob", "NFSServer", "StorageNode", "Volume", "Snapshot"}
	for _, kind := range kinds {
		f.Add(kind, broken[kind].text)
	}
	f.Add("Volume", `"spec":null,"status":[]`)
	f.Add("Volume", `"spec":{"size":{"required":"1e400"}}`)
	scheme := runtime.NewScheme()
	check.OK(f, AddToScheme(scheme))
	codec := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	f.Fuzz(func(t *testing.T, kind, rest string) {
		text := object(kind, rest)
		var fields map[string]stdjson.RawMessage
		if stdjson.Unmarshal([]byte(text), &fields) != nil || strings.Contains(rest, "metadata") || strings.Contains(rest, "kind") || strings.Contains(rest, "apiVersion") {
			return
		}
		o, err := runtime.Decode(codec, []byte(text))
		if runtime.IsNotRegisteredError(err) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if ours, is := o.(Object); is && ours.GetName() != "bad" {
			t.Errorf("%s: its name is %q", text, ours.GetName())
		}
	})
}
