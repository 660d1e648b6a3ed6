// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
)

func TestReadinessSurvivesAHiccupOfEtcd(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var etcd error
	check := &tolerantCheck{check: func() error { return etcd }, tolerance: 15 * time.Second, clock: clock}
	step := func(after time.Duration, state error, ready bool) {
		t.Helper()
		etcd = state
		clock.SetTime(clock.Now().Add(after))
		if err := check.run(); (err == nil) != ready {
			t.Errorf("%s later, etcd %v: %v, want ready: %t", after, state, err, ready)
		}
	}
	away := errors.New("no leader")
	step(0, away, false) // never seen: not ready
	step(time.Second, nil, true)
	step(10*time.Second, away, true)
	step(5*time.Second, away, true)
	step(time.Second, away, false)
	step(time.Second, nil, true)
	step(14*time.Second, away, true)
}

func TestStrategicMergePatchesNeverReachTheHandler(t *testing.T) {
	t.Parallel()
	reached := false
	handler := withoutStrategicMerge(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	for name, tc := range map[string]struct {
		method, path, contentType string
		passes                    bool
	}{
		"strategic":               {http.MethodPatch, "/apis/ichor.maesh.dev/v1alpha1/talosclusters/x", strategicMerge, false},
		"strategic, with charset": {http.MethodPatch, "/apis/ichor.maesh.dev/v1alpha1/talosclusters/x", strategicMerge + "; charset=utf-8", false},
		"merge":                   {http.MethodPatch, "/apis/ichor.maesh.dev/v1alpha1/talosclusters/x", string(types.MergePatchType), true},
		"a put":                   {http.MethodPut, "/apis/ichor.maesh.dev/v1alpha1/talosclusters/x", strategicMerge, true},
	} {
		reached = false
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(tc.method, tc.path, strings.NewReader("{}"))
		request.Header.Set("Content-Type", tc.contentType)
		handler.ServeHTTP(recorder, request)
		if reached != tc.passes || !tc.passes && recorder.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s: reached the handler: %t, code %d; should pass: %t", name, reached, recorder.Code, tc.passes)
		}
	}
}

func TestClientsThatLikeProtobufBetter(t *testing.T) {
	t.Parallel()
	const meta = protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for accept, want := range map[string]string{
		protobufType + ",application/json":                       "application/json",
		protobufType + ", application/json;q=0.9":                " application/json;q=0.9",
		meta + ",application/json":                               meta + ",application/json",
		meta + "," + protobufType + ",application/json;as=Table": meta + ",application/json;as=Table",
		protobufType: "",
	} {
		if got := withoutPlainProtobuf(accept); got != want {
			t.Errorf("accept %q becomes %q, want %q", accept, got, want)
		}
	}
}
