package v1beta1

import (
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/randfill"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// filler makes values that the types can hold: times as they are written, amounts in bytes.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).SkipFieldsWithPattern(regexp.MustCompile("^(Decoding|DecodeError)$")).Funcs(
		func(q *resource.Quantity, c randfill.Continue) { *q = *bytes(c.Int63()) },
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.NewTime(time.Unix(c.Int63n(1<<32), 0)) },
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.NewMicroTime(time.UnixMicro(c.Int63n(1 << 50)))
		},
		func(at *metav1.TypeMeta, _ randfill.Continue) { *at = metav1.TypeMeta{} }, // the codec's
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString("{}") },
	)
}

func TestJSON_EveryObjectSurvivesWritingAndReading(t *testing.T) {
	scheme := newScheme(t)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	codec := codecs.LegacyCodec(SchemeGroupVersion)
	for kind := range scheme.KnownTypes(SchemeGroupVersion) {
		for range 200 {
			object, err := scheme.New(SchemeGroupVersion.WithKind(kind))
			check.OK(t, err)
			if reflect.TypeOf(object).Elem().PkgPath() != reflect.TypeFor[Volume]().PkgPath() {
				break // ListOptions and the like
			}
			seed := rand.Int64()
			filler(seed).Fill(object)
			text, err := runtime.Encode(codec, object)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			read, err := runtime.Decode(codecs.UniversalDeserializer(), text)
			if err != nil {
				t.Fatalf("seed %d: %v: %s", seed, err, text)
			}
			read.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			if !equality.Semantic.DeepEqual(object, read) {
				t.Fatalf("seed %d: written %+v, read %+v", seed, object, read)
			}
			if copied := object.DeepCopyObject(); !reflect.DeepEqual(object, copied) {
				t.Fatalf("seed %d: the copy of %+v is %+v", seed, object, copied)
			}
		}
	}
}

func TestJSON_SizeKeepsEveryByte(t *testing.T) {
	sizes := []int64{0, 1, 999, 1000, 1024, 1_234_567, 1<<40 + 1, 1<<53 + 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	for range 1000 {
		sizes = append(sizes, rand.Int64())
	}
	for _, size := range sizes {
		text := check.Got(json.Marshal(VolumeStatus{Size: bytes(size)}))(t)
		var read VolumeStatus
		check.OK(t, json.Unmarshal(text, &read))
		if read.Size.Value() != size {
			t.Errorf("%d was written as %s and read as %d", size, text, read.Size.Value())
		}
	}
}

func TestJSON_UnsetFieldIsOmitted(t *testing.T) {
	for object, want := range map[any]string{
		&VolumeSpec{Name: "a", Node: "n"}: `{"name":"a","node":"n"}`,
		&VolumeStatus{}:                   `{}`,
		&SnapshotSpec{Name: "a", SourceRef: FromVolume("b"), Node: "n"}: `{"name":"a","sourceRef":{"kind":"Volume","name":"b"},"node":"n"}`,
		&SnapshotStatus{}:                    `{}`,
		&StorageNodeStatus{}:                 `{}`,
		&Pool{Name: "fast", Used: *bytes(0)}: `{"name":"fast","capacity":"0","promised":"0","used":"0","available":"0","smallest":"0","largest":"0","volumes":0,"snapshots":0}`,
	} {
		text, err := json.Marshal(object)
		if err != nil || string(text) != want {
			t.Errorf("%T is written as %s, %v; want %s", object, text, err, want)
		}
	}
}
