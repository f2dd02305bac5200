// SPDX-License-Identifier: Apache-2.0

// The server with TLS.

#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "openssl/ssl.h"
#include "tests/common/http/http_client.h"
#include "tests/testing/certificates.h"

namespace specwire {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class HttpTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpServerOptions options;
    options.tls = authority_.Issue(kCoordinatorCertificate, "server");
    options.timeout = absl::Seconds(5);
    server_ = std::make_unique<HttpServer>(options);
    server_->Handle("/who", [](const HttpRequest& request) {
      HttpResponse response;
      response.body =
          request.client->has_certificate()
              ? absl::StrJoin(request.client->certificate_names(), ",")
              : "nobody";
      return response;
    });
    ASSERT_TRUE(server_->Start().ok());
  }

  // The answer to a GET of /who; empty if the handshake or the call fails.
  std::string Ask(const TlsFiles& files) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
    SSL_CTX_load_verify_locations(context.get(), files.ca.c_str(), nullptr);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (!files.cert.empty()) {
      SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str());
      SSL_CTX_use_PrivateKey_file(
          context.get(), files.key.c_str(), SSL_FILETYPE_PEM);
    }
    const int fd = DialLoopback(server_->port());
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()),
                                                        &SSL_free);
    SSL_set_fd(ssl.get(), fd);
    std::string answer;
    if (SSL_connect(ssl.get()) == 1) {
      const std::string request =
          "GET /who HTTP/1.1\r\nConnection: close\r\n\r\n";
      SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
      char buffer[4096];
      int count = 0;
      while ((count = SSL_read(ssl.get(), buffer, sizeof(buffer))) > 0) {
        answer.append(buffer, static_cast<size_t>(count));
      }
    }
    close(fd);
    return answer;
  }

  TestAuthority authority_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, ServesWhoHasNoCertificateAndKnowsWhoHasOne) {
  EXPECT_THAT(Ask(authority_.Root()), EndsWith("nobody"));
  EXPECT_THAT(Ask(authority_.Issue(kOperatorCertificate, "client")),
              EndsWith(kOperatorCertificate));
}

TEST_F(HttpTlsTest, RefusesAnotherAuthoritysCertificate) {
  TestAuthority other;
  TlsFiles files = other.Issue(kOperatorCertificate, "client");
  files.ca = authority_.Root().ca;
  EXPECT_EQ(Ask(files), "");
}

TEST_F(HttpTlsTest, RefusesAnExpiredCertificate) {
  EXPECT_EQ(Ask(authority_.Issue(
                kOperatorCertificate, "old", absl::Now() - absl::Minutes(5))),
            "");
}

TEST_F(HttpTlsTest, SurvivesWhoSpeaksWithoutTls) {
  EXPECT_THAT(Exchange(server_->port(), "GET /who HTTP/1.1\r\n\r\n"),
              testing::Not(HasSubstr("200")));
  EXPECT_THAT(Ask(authority_.Root()), EndsWith("nobody"));
}

TEST_F(HttpTlsTest, AChangedCertificateIsTakenOver) {
  const std::string before = Ask(authority_.Root());
  EXPECT_THAT(before, EndsWith("nobody"));
  TestAuthority next;
  // A new root with a certificate of its own, in place of the old files.
  const TlsFiles issued = next.Issue(kCoordinatorCertificate, "server");
  for (const auto& [from, to] :
       {std::pair{issued.cert, authority_.Path("server.pem")},
        std::pair{issued.key, authority_.Path("server.key")},
        std::pair{issued.ca, authority_.Root().ca}}) {
    ASSERT_EQ(rename(from.c_str(), to.c_str()), 0) << from << " " << to;
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  std::string answer;
  while (answer.empty() && absl::Now() < deadline) {
    answer = Ask(authority_.Root());
    if (answer.empty()) absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(answer, EndsWith("nobody"));
}

}  // namespace
}  // namespace specwire
