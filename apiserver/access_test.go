// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	certutil "k8s.io/client-go/util/cert"
)

func selfSigned(t *testing.T, name string) []byte {
	t.Helper()
	cert, _, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestTheFrontProxyHasAnAuthorityOfItsOwn(t *testing.T) {
	t.Parallel()
	clients, proxy := selfSigned(t, "clients"), selfSigned(t, "front-proxy")
	for name, tc := range map[string]struct {
		header, client []byte
		refused        bool
	}{
		"two authorities":               {proxy, clients, false},
		"one authority for both":        {clients, clients, true},
		"one of several is for both":    {append(append([]byte{}, proxy...), clients...), clients, true},
		"no front proxy":                {nil, clients, false},
		"no client certificates at all": {proxy, nil, false},
		"a bundle that can't be read":   {[]byte("x"), clients, true},
	} {
		if err := distinctCAs(tc.header, tc.client); (err != nil) != tc.refused {
			t.Errorf("%s: %v, refused should be %t", name, err, tc.refused)
		}
	}
}

func TestPathsThatOpenTheAPI(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/healthz": false, "/livez": false, "readyz": false, "/metrics": false, "/apisomething": false,
		"/apis": true, "apis/ichor.maesh.dev": true, "/*": true, "*": true, "/apis*": true, "/apis/*": true, "/a*": true, "/api": true,
	} {
		if got := opensAPI(path); got != want {
			t.Errorf("opensAPI(%q) = %t, want %t", path, got, want)
		}
	}
}

func TestStartWithoutAccessControlIsRefused(t *testing.T) {
	t.Parallel()
	if err := checkAccess(genericapiserver.NewConfig(Codecs)); err == nil || !strings.Contains(err.Error(), "authorizer") {
		t.Errorf("no authorizer: %v", err)
	}
}
