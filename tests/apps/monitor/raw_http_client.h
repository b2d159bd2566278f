#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace troop {

// A raw client of an HTTP server on this machine, which can send what a browser never sends.
class RawHttpClient {
 public:
  explicit RawHttpClient(const std::string& address, int receive_bytes = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    const timeval patience{.tv_sec = 20};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    std::uint16_t port = 0;
    std::from_chars(address.data() + address.rfind(':') + 1, address.data() + address.size(), port);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~RawHttpClient() { close(fd_); }
  RawHttpClient(const RawHttpClient&) = delete;
  RawHttpClient& operator=(const RawHttpClient&) = delete;

  // False: the server has closed.
  bool Send(std::string_view bytes) {
    while (connected_ && !bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(std::size_t(n));
    }
    return connected_;
  }
  // All that comes until the server closes; "waited in vain" if it does not.
  std::string Receive() {
    std::string all;
    char bytes[65536];
    for (;;) {
      const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return "waited in vain";
      if (n <= 0) return all;
      all.append(bytes, std::size_t(n));
    }
  }

  // One response with its body of Content-Length; what came before the end if the server closes.
  std::string ReceiveResponse() {
    char bytes[65536];
    for (;;) {
      const std::size_t head = in_.find("\r\n\r\n");
      if (head != std::string::npos) {
        const std::size_t at = in_.find("Content-Length: ");
        const std::size_t size = head + 4 + (at < head ? std::stoul(in_.substr(at + 16)) : 0);
        if (in_.size() >= size) {
          const std::string response = in_.substr(0, size);
          in_.erase(0, size);
          return response;
        }
      }
      const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return "waited in vain";
      if (n <= 0) return std::exchange(in_, {});
      in_.append(bytes, std::size_t(n));
    }
  }
  // Sends a POST with a body, and receives the response.
  std::string Post(const std::string& path, std::string_view body,
                   const std::string& headers = "Content-Type: application/json\r\n") {
    std::string request = "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
                          "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    request += body;
    Send(request);
    return ReceiveResponse();
  }
  std::string Get(const std::string& path, const std::string& headers = "") {
    Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    return ReceiveResponse();
  }
  // Closes the sending side.
  void CloseSending() { shutdown(fd_, SHUT_WR); }
  bool connected() const { return connected_; }

 private:
  const int fd_;
  bool connected_ = false;
  std::string in_;  // received after the last response
};

// The status of a response; 0: none.
inline int HttpStatusOf(const std::string& response) {
  return response.starts_with("HTTP/1.1 ") ? std::stoi(response.substr(9, 3)) : 0;
}
inline std::string HttpBodyOf(const std::string& response) {
  const std::size_t head = response.find("\r\n\r\n");
  return head == std::string::npos ? "" : response.substr(head + 4);
}

}  // namespace troop
